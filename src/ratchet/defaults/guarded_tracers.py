"""The tracers of a scheduler as one, guarded: whatever they do, jobs are submitted and run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any

from ratchet.defaults.guards import pass_on_interruption
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.tracer import Attempt, AttemptEnd, Carrier, RemoteScope, Submitted, TracedAttempt, Tracer

faults = FaultLog(logging.getLogger("ratchet.parts"))

#: Characters of one value that travel with a job.
LONGEST_VALUE = 1024


class GuardedTracers:
    """Passes everything on to any number of tracers, the first one outermost."""

    def __init__(self, tracers: Sequence[Tracer]) -> None:
        self.tracers = tuple(tracers)

    @contextmanager
    def submitting(self, submitted: Submitted) -> Iterator[Carrier]:
        """What all of them want to be stored with the jobs."""
        carrier: dict[str, str] = {}
        with ExitStack() as stack:
            for tracer in self.tracers:
                carrier |= _storable(
                    stack.enter_context(_Guarded(_called(tracer, "Tracer", "submitting", submitted)))
                )
            yield carrier

    def attempt(self, attempt: Attempt) -> TracedAttempt | None:
        """One attempt, for all of them."""
        found = [_called(tracer, "Tracer", "attempt", attempt) for tracer in self.tracers]
        followed = [one for one in found if one is not None]
        return _GuardedAttempt(followed) if followed else None


def guarded_tracers(known: Tracer | None, more: Tracer) -> GuardedTracers:
    """*more* beside those that are there."""
    return GuardedTracers([*(known.tracers if isinstance(known, GuardedTracers) else ()), more])


class _GuardedAttempt:
    """An attempt that tracers follow."""

    def __init__(self, attempts: Sequence[TracedAttempt]) -> None:
        self._attempts = attempts

    @contextmanager
    def entered(self) -> Iterator[None]:
        with ExitStack() as stack:
            for attempt in self._attempts:
                stack.enter_context(_Guarded(_called(attempt, "TracedAttempt", "entered")))
            yield

    def remote(self) -> Sequence[RemoteScope]:
        found = [_called(attempt, "TracedAttempt", "remote") for attempt in self._attempts]
        return [
            scope
            for scopes in found
            if isinstance(scopes, Sequence)
            for scope in scopes
            if isinstance(scope, RemoteScope)
        ]

    def ended(self, end: AttemptEnd) -> None:
        for attempt in reversed(self._attempts):
            _called(attempt, "TracedAttempt", "ended", end)


class _Guarded:
    """Enters and leaves a block of a tracer; what the block raises by itself is logged, what runs in it decides alone."""

    def __init__(self, block: AbstractContextManager[Any] | None) -> None:
        self._block = block

    def __enter__(self) -> Any:
        block, self._block = self._block, None
        if block is None:
            return None
        try:
            value = block.__enter__()
        except BaseException as error:
            pass_on_interruption(error)
            faults.note("a block of a Tracer could not be entered", error)
            return None
        self._block = block
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._block is None:
            return
        try:
            self._block.__exit__(kind, error, trace)
        except BaseException as raised:
            if raised is error:  # a generator passes on what was raised in its block
                return
            pass_on_interruption(raised)
            faults.note("a block of a Tracer could not be left", raised)


def _called(part: object, kind: str, method: str, *args: object) -> Any:
    """What a method answers; None if there is no such method, or it raises."""
    function = getattr(part, method, None)
    if function is None:
        return None
    try:
        return function(*args)
    except BaseException as error:
        pass_on_interruption(error)
        faults.note(f"{kind}.{method}() raised; the job goes on without it", error)
        return None


def _storable(given: object) -> dict[str, str]:
    """What may be stored of a carrier: it may come from whoever sent a request."""
    if not isinstance(given, Mapping):
        return {}
    return {
        name: value
        for name, value in given.items()
        if isinstance(name, str) and isinstance(value, str) and _is_plain(name) and _is_plain(value)
    }


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and len(text) <= LONGEST_VALUE
