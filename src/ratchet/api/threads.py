"""Runs synchronous verbs for coroutines, on a few threads of its own."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from ratchet.api.context import transaction_thread

P = ParamSpec("P")
T = TypeVar("T")

#: Verbs of the await face that are in the database at the same time.
THREADS = 8

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ratchet-aio")
        return _pool


async def in_thread(verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What ``verb(*args, **kwargs)`` returns, without blocking the event loop; context variables are taken along."""
    transaction = transaction_thread()
    if transaction is not None:  # what is done inside ctx.aio.transaction() joins it, on its own thread
        joined: T = await transaction.run(lambda: verb(*args, **kwargs))
        return joined
    import asyncio  # heavy, and only needed where a loop is running already

    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(
        _threads(), lambda: context.run(verb, *args, **kwargs)
    )


def start_in_thread(verb: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Have ``verb(*args, **kwargs)`` called on such a thread, whether or not a loop is still running; nobody waits for it."""
    context = contextvars.copy_context()
    _threads().submit(lambda: context.run(verb, *args, **kwargs))


async def joining(verb: Callable[[object | None], T], within: object | None) -> T:
    """
    What ``verb(within)`` returns, without blocking the event loop.

    An async SQLAlchemy session or connection lends its synchronous face itself: ``run_sync`` is how
    statements reach its driver.
    """
    run_sync = getattr(within, "run_sync", None)
    if run_sync is not None:
        result: T = await run_sync(verb)
        return result
    return await in_thread(verb, within)


def _forget_threads() -> None:
    # After a fork the pool's threads exist only in the parent.
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
