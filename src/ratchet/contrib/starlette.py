"""
Ratchet in FastAPI and Starlette: the scheduler lives as long as the application.

Needs the extra ``starlette``. ``FastAPI(lifespan=lifespan(scheduler))``; in an endpoint, ``Depends(current_scheduler)`` gives the
scheduler, whose ``aio`` face is for ``async def``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, overload

from starlette.applications import Starlette
from starlette.requests import HTTPConnection

from ratchet.model.errors import ConfigurationError
from ratchet.scheduler import Scheduler

#: As Starlette tells them apart, so that its type checks pass: a lifespan without a state, and one that yields some.
StatelessLifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[None]]
StatefulLifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]


@overload
def lifespan(
    scheduler: Scheduler, worker: bool = False, *, then: StatelessLifespan | None = None
) -> StatelessLifespan: ...
@overload
def lifespan(scheduler: Scheduler, worker: bool = False, *, then: StatefulLifespan) -> StatefulLifespan: ...
def lifespan(scheduler: Scheduler, worker: bool = False, *, then: Any = None) -> Any:
    """
    A lifespan that makes *scheduler* known to the application, and frees its connections at the end.

    *worker*: this process also runs jobs. They are drained at the end, and what does not finish is handed back. *then*:
    another lifespan, which runs inside this one.
    """

    @asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[Mapping[str, Any] | None]:
        app.state.ratchet = scheduler
        if worker:
            await asyncio.to_thread(scheduler.start)
        try:
            if then is None:
                yield None
            else:
                async with then(app) as state:
                    yield state
        finally:
            # stop() drains: the loop must go on meanwhile, for async code that jobs may wait for.
            await asyncio.to_thread(scheduler.close)

    return live


def current_scheduler(connection: HTTPConnection) -> Scheduler:
    """The scheduler of the application that serves this request; for ``Depends`` in FastAPI, or to be called with a request."""
    found = getattr(connection.app.state, "ratchet", None)
    if not isinstance(found, Scheduler):
        raise ConfigurationError(
            "this application knows no scheduler; make it with lifespan=ratchet.contrib.starlette.lifespan(scheduler)"
        )
    return found
