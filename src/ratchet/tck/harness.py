"""What the author of a store writes to have it tested: how to open the store, empty, and how to open it again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Literal, TypeAlias, TypeVar

from ratchet.spi.store import Capabilities, JobStore
from ratchet.tck.steps import Steps

F = TypeVar("F", bound=Callable[..., object])

#: When the connection is lost at a commit: before the change was made, or after it, and nobody was told.
CommitMoment: TypeAlias = Literal["before", "after"]

_NEEDS = "__ratchet_needs__"


class Harness(Steps, ABC):
    """
    One store under test.

    The kit makes one harness per run. It calls `open` before and `close` after every contract, and
    `shutdown` at the end. `Steps` adds everything else that contracts use.
    """

    #: What the store declares; a contract that needs more is skipped, with the reason.
    capabilities: Capabilities = Capabilities()

    #: Host and port of the database server, if there is one; the kit then puts a proxy in front of it.
    server: tuple[str, int] | None = None

    #: How long a call on a handle from `via` may take if the server does not answer at all.
    call_deadline: timedelta = timedelta(seconds=10)

    #: How many random sequences of verbs are compared with the reference; more find more errors and take longer.
    random_lives: int = 20

    @abstractmethod
    def open(self) -> JobStore:
        """A migrated store without data. Called before every contract."""

    @abstractmethod
    def reopen(self) -> JobStore:
        """Another handle on the data of the last `open`, such as another node or process has."""

    @abstractmethod
    def close(self) -> None:
        """Close every handle that `open`, `reopen` and `via` returned. Called after every contract."""

    def shutdown(self) -> None:
        """Free what is kept from one contract to the next. Called once, at the end."""

    def reopen_many(self, count: int) -> list[JobStore]:
        """Several handles from `reopen`, one for each of several nodes."""
        return [self.reopen() for _ in range(count)]

    def via(self, host: str, port: int) -> JobStore:
        """Another handle on the same data, which reaches `server` through this address."""
        raise TypeError(f"{type(self).__name__} sets `server`, so it must also define via(host, port)")

    def commit_fault(self, store: JobStore, moment: CommitMoment) -> AbstractContextManager[None] | None:
        """
        While the block runs, the next commit on *store* loses its connection *before* or *after* it took
        effect.

        For stores without a server. Return None if that is not possible; the contracts about it are then
        skipped.
        """
        return None


def needs(*capabilities: str) -> Callable[[F], F]:
    """Mark a contract (or all of a class) that only stores with these capabilities must fulfill."""

    def mark(contract: F) -> F:
        setattr(contract, _NEEDS, (*getattr(contract, _NEEDS, ()), *capabilities))
        return contract

    return mark


def missing_capabilities(harness: Harness, *marked: object) -> Iterator[str]:
    """What the marked contract needs and the harness does not declare."""
    for contract in marked:
        for name in getattr(contract, _NEEDS, ()):
            declared = harness.server is not None if name == "server" else getattr(harness.capabilities, name)
            if not declared:
                yield name
