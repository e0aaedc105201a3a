"""A race: several threads that start at the same moment, and what each of them returned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

#: How often a race is run, so that not always the same runner wins.
ROUNDS = 12

#: Seconds. A race that takes longer hangs: some call waits for another one that waits for it.
TIMEOUT = 60.0


class Finish(Generic[T]):
    """What one runner returned: a value, or the error that stopped it."""

    def __init__(self) -> None:
        self.value: T | None = None
        self.error: BaseException | None = None

    def unwrap(self) -> T:
        """The value; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # a runner that ended without error has set it


def race(runners: Sequence[Callable[[], T]]) -> list[Finish[T]]:
    """Start all runners at once, each in its own thread; their results, in the order of the runners."""
    gate = threading.Barrier(len(runners))
    finishes: list[Finish[T]] = [Finish() for _ in runners]

    def run(runner: Callable[[], T], finish: Finish[T]) -> None:
        try:
            gate.wait(TIMEOUT)
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
        thread.join(TIMEOUT)
    stuck = [thread.name for thread in threads if thread.is_alive()]
    assert not stuck, f"still running after {TIMEOUT:g} s: {', '.join(stuck)}"
    return finishes


def results(runners: Sequence[Callable[[], T]]) -> list[T]:
    """The values of a race in which no runner may fail."""
    return [finish.unwrap() for finish in race(runners)]
