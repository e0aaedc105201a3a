"""Store calls block: they are made on threads of the dashboard's own, so that it cannot take an application's."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: Requests that are worked on at once; more wait.
MOST = 8

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What *function* returns; it sees the context variables of the caller."""
    call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(), call)


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(MOST, thread_name_prefix="ratchet-dashboard")
        return _pool


def _forget() -> None:
    """In a forked child there are no such threads."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
