"""A race: several threads that start at the same moment, and what each of them got."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

#: How often a race is run: who wins should not always be the same.
ROUNDS = 12

#: A race that takes longer than this hangs: some call waits for another one that waits for it.
PATIENCE = 60.0


class Finish(Generic[T]):
    """What one runner brought back: a value, or the error it was stopped by."""

    def __init__(self) -> None:
        self.value: T | None = None
        self.error: BaseException | None = None

    def unwrap(self) -> T:
        """The value; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # a runner that ended without error has set it


def race(runners: Sequence[Callable[[], T]]) -> list[Finish[T]]:
    """Let all runners go at once, each in a thread of its own; their results, in the order of the runners."""
    gate = threading.Barrier(len(runners))
    finishes: list[Finish[T]] = [Finish() for _ in runners]

    def run(runner: Callable[[], T], finish: Finish[T]) -> None:
        try:
            gate.wait(PATIENCE)
            finish.value = runner()
        except BaseException as error:  # handed to the caller of race()
            finish.error = error

    threads = [
        threading.Thread(target=run, args=pair, name=f"runner-{number}", daemon=True)
        for number, pair in enumerate(zip(runners, finishes, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    stuck = [thread.name for thread in threads if thread.is_alive()]
    assert not stuck, f"still not back after {PATIENCE:g} s: {', '.join(stuck)}"
    return finishes


def results(runners: Sequence[Callable[[], T]]) -> list[T]:
    """The values of a race in which nobody may fail."""
    return [finish.unwrap() for finish in race(runners)]
