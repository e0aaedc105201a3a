"""Listeners and middleware: checks of the functions that users run around their jobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from ratchet.api.context import JobContext
from ratchet.model.errors import InvalidJob
from ratchet.model.events import Event

M = TypeVar("M", bound=Callable[..., Any])

#: A context manager around each run.
Middleware = Callable[[JobContext], AbstractContextManager[Any]]


def checked_listener(listener: Any) -> Callable[[Any], object]:
    """*listener*, if it can be called on the dispatcher thread."""
    if not callable(listener):
        raise InvalidJob(f"a listener is a callable that takes the event, not {listener!r}")
    if inspect.iscoroutinefunction(listener):
        raise InvalidJob(
            f"{listener.__qualname__} is async; listeners run on a thread: write a plain function, or "
            f"enqueue a job from it"
        )
    return listener  # type: ignore[no-any-return]


def checked_event(kind: Any) -> type[Event]:
    """*kind*, if it is a class of events."""
    if not (isinstance(kind, type) and issubclass(kind, Event)):
        raise InvalidJob(
            f"listen for an event class such as JobFailed, or JobEvent for all of jobs, not {kind!r}"
        )
    return kind


def as_middleware(function: Any) -> Middleware:
    """*function* as middleware: a generator with one ``yield``, or a function that returns a context manager."""
    if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
        raise InvalidJob(
            f"{function.__qualname__} is async; middleware is a plain context manager: use def and one yield"
        )
    if inspect.isgeneratorfunction(function):
        return contextmanager(function)
    if not callable(function):
        raise InvalidJob(f"middleware is a function of the JobContext, not {function!r}")
    return _Checked(function)


class _Checked:
    """Middleware that was not written as a generator; refused if it does not return a context manager."""

    def __init__(self, function: Callable[[JobContext], Any]) -> None:
        self._function = function
        self.__wrapped__ = function

    def __call__(self, context: JobContext) -> AbstractContextManager[Any]:
        manager = self._function(context)
        if not hasattr(manager, "__enter__"):
            name = getattr(self._function, "__qualname__", repr(self._function))
            raise InvalidJob(
                f"{name} must return a context manager; write `yield` where the job runs, as in "
                f"a contextlib.contextmanager"
            )
        return manager  # type: ignore[no-any-return]
