"""
Ratchet in Litestar: ``Litestar(plugins=[RatchetPlugin(scheduler)])``. Needs the extra ``litestar``.

Handlers take the scheduler as a dependency: a parameter named ``scheduler``.
"""

from __future__ import annotations

import asyncio

from litestar.config.app import AppConfig
from litestar.di import Provide
from litestar.plugins import InitPlugin

from ratchet.scheduler import Scheduler


class RatchetPlugin(InitPlugin):
    """
    Gives the application its scheduler, and frees its connections at the end.

    *worker*: this process also runs jobs, which are drained at the end. *dependency*: the name of the parameter.
    """

    def __init__(self, scheduler: Scheduler, worker: bool = False, *, dependency: str = "scheduler") -> None:
        self.scheduler = scheduler
        self._worker = worker
        self._dependency = dependency

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Called by Litestar."""
        app_config.dependencies[self._dependency] = Provide(lambda: self.scheduler, sync_to_thread=False)
        app_config.signature_types.append(Scheduler)
        app_config.on_startup.append(self._start)
        app_config.on_shutdown.append(self._close)
        return app_config

    async def _start(self) -> None:
        if self._worker:
            await asyncio.to_thread(self.scheduler.start)

    async def _close(self) -> None:
        await asyncio.to_thread(self.scheduler.close)
