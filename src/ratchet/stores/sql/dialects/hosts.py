"""`Hosts`: several servers of which one takes writes; whoever answered last as the primary is asked first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

H = TypeVar("H")
C = TypeVar("C")


class NotConnected(Exception):
    """One host cannot be used; the text says why, without secrets."""

    def __init__(self, problem: str, cause: BaseException | None = None) -> None:
        super().__init__(problem)
        self.cause = cause


class Hosts(Generic[H]):
    """
    The hosts of one URL, in the order in which they are tried.

    After a switch the new primary is found by trying all of them; from then on it is the first, so that nobody waits again for
    one that is down.
    """

    def __init__(self, hosts: Sequence[H]) -> None:
        self._hosts = tuple(hosts)
        self._first = 0

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[H]:
        return iter(self._hosts)

    def first_that(self, connect: Callable[[H], C]) -> C:
        """
        What *connect* makes of the first host that can be used.

        `NotConnected` if there is none, with the problem of each; another exception ends the search.
        """
        problems: list[str] = []
        cause: BaseException | None = None
        begin = self._first
        for offset in range(len(self._hosts)):
            number = (begin + offset) % len(self._hosts)
            try:
                made = connect(self._hosts[number])
            except NotConnected as error:
                problems.append(str(error))
                cause = error.cause
            else:
                self._first = number
                return made
        raise NotConnected("; ".join(problems), cause)
