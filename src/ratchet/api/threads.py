"""
The await face is made from the sync face: `awaited` turns a verb into a coroutine function.

Verbs run on a few threads that all faces of the process share.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from ratchet.api.context import transaction_thread
from ratchet.spi.loop_bound import LoopBound, bound_to

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

P = ParamSpec("P")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)  # a verb of a base class is a verb of the face as well
T = TypeVar("T")

#: How many awaited verbs can be in the database at the same time.
THREADS = 8

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            from concurrent.futures import ThreadPoolExecutor

            _pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ratchet-aio")
        return _pool


class AwaitFace(Generic[S_co]):
    """The awaitable face of a sync object; its class lists the verbs, each made by `awaited`."""

    __slots__ = ("_sync",)

    def __init__(self, sync: S_co) -> None:
        self._sync = sync


def awaited(
    verb: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[AwaitFace[S], P], Coroutine[Any, Any, T]]:
    """
    *verb*, a method of the sync object, as a coroutine method of its `AwaitFace`.

    Parameters, types and docstring are those of *verb*. If it takes ``within``, that may also be the connection of an
    async driver, or an async SQLAlchemy session or connection.
    """
    name = verb.__name__
    takes_within = "within" in (getattr(verb, "__kwdefaults__", None) or ())

    @functools.wraps(verb)
    async def run(face: AwaitFace[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound: Callable[..., T] = getattr(face._sync, name)  # looked up: a subclass may override it
        if not takes_within:
            return await in_thread(bound, *args, **kwargs)
        within = kwargs.pop("within", None)
        return await joining(lambda own: bound(*args, **kwargs, within=own), within)

    run.__qualname__ = f"Async{verb.__qualname__}"  # shown when a coroutine is never awaited
    return run


async def in_thread(verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What ``verb(*args, **kwargs)`` returns, without blocking the event loop; *verb* sees the caller's context variables."""
    transaction = transaction_thread()
    if transaction is not None:  # a verb inside ctx.aio.transaction() joins it, on the transaction's thread
        joined: T = await transaction.run(lambda: verb(*args, **kwargs))
        return joined
    import asyncio  # heavy, and only needed where a loop is running already

    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(
        _threads(), lambda: context.run(verb, *args, **kwargs)
    )


def start_in_thread(verb: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Call ``verb(*args, **kwargs)`` on one of the threads and do not wait for it; no running loop is needed."""
    context = contextvars.copy_context()
    _threads().submit(lambda: context.run(verb, *args, **kwargs))


async def joining(verb: Callable[[object | None], T], within: object | None) -> T:
    """
    What ``verb(within)`` returns, without blocking the event loop.

    *verb* runs in a thread. A connection that only this loop may use comes to it as a `LoopBound`.
    """
    if within is None:
        return await in_thread(verb, None)
    import asyncio

    bound = bound_to(asyncio.get_running_loop(), within)
    running = asyncio.ensure_future(in_thread(verb, bound))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # The thread is using the caller's connection, and the caller would roll back on it next.
        if isinstance(bound, LoopBound):
            bound.interrupt()
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # looked at, so that asyncio does not complain; the caller is told that it was canceled
        raise


def _forget_threads() -> None:
    # After a fork the pool's threads exist only in the parent.
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
