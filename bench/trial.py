"""One run of the bench: who takes part, where, and how much of everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from bench.conversation import Contender, Process, SubjectFailed, ratchet
from bench.measurement import Results
from bench.servers import Place, Places, PostgresqlPlace

T = TypeVar("T")


@dataclass
class Bench:
    """What every workload is given."""

    contenders: Sequence[Contender]
    places: Mapping[str, Places]  # by the name of the store
    rounds: int
    scale: float
    minutes: float
    results: Results
    say: Callable[[str], None]

    def size(self, full: int, least: int = 200) -> int:
        """So many, scaled."""
        return max(int(full * self.scale), least)

    def on(self, store: str) -> list[Contender]:
        """Who can be measured on a store."""
        return [contender for contender in self.contenders if store in contender.stores]

    def in_rounds(self, subjects: Sequence[T]) -> Iterator[Sequence[T]]:
        """The subjects of each round; every other round in reverse, since whoever comes second has a warmer server."""
        return alternating(subjects, self.rounds)

    def subjects(
        self, stack: ExitStack, contenders: Sequence[Contender], store: str = "postgresql"
    ) -> list[tuple[Contender, Place, Process]]:
        """Each contender with a place and a process of its own."""
        found: list[tuple[Contender, Place, Process]] = []
        for contender in contenders:
            place = stack.enter_context(self.places[store].new())
            found.append((contender, place, stack.enter_context(contender.start(place.url))))
        if not found:
            raise SubjectFailed("nobody to measure")
        return found

    def alone(
        self, stack: ExitStack, subject: str = "bench.subject"
    ) -> tuple[Contender, PostgresqlPlace, Process]:
        """Ratchet by itself on PostgreSQL, with the jobs of *subject*."""
        contender, place, process = self.subjects(stack, [ratchet(subject)])[0]
        assert isinstance(place, PostgresqlPlace)
        return contender, place, process


def alternating(subjects: Sequence[T], times: int) -> Iterator[Sequence[T]]:
    """The same subjects so many times, forward and backward in turn."""
    for number in range(times):
        yield subjects[::-1] if number % 2 else subjects
