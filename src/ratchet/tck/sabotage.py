"""The same operation again and again, with the connection lost at a different moment each time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import get_args

import pytest

from ratchet.model.errors import CommitUnknown, StoreUnavailable
from ratchet.spi.store import JobStore
from ratchet.tck.faults import Moment, Proxy
from ratchet.tck.harness import CommitMoment, Harness

#: How many calls may fail on dead connections before the store has to work again.
SURPRISES = 5

#: Seconds within which a server notices that a client is gone.
QUIET = 5.0


class Situation(ABC):
    """One operation that loses its connection: prepared on a good connection, done on a bad one, then checked."""

    @abstractmethod
    def operate(self, store: JobStore) -> None:
        """Do the operation once; an error of the store is raised."""

    @abstractmethod
    def is_done(self) -> bool:
        """True if the whole change was made; fails if only a part of it was."""

    @abstractmethod
    def repeat(self) -> None:
        """Do what a caller does that does not know the outcome: the same again, on a good connection."""

    def judge(self, error: StoreUnavailable | None) -> None:
        """Check that the caller was told the truth, and that repeating the operation makes the change exactly once."""
        done = settled(self.is_done)
        if error is None:
            assert done, "the call returned, but its change is not there"
        elif not isinstance(error, CommitUnknown):
            assert not done, f"the caller was told that nothing happened ({error!r}), but the change is there"
        self.repeat()
        assert self.is_done()


def settled(question: Callable[[], bool]) -> bool:
    """
    The answer, once the server has finished with a connection that it does not know to be lost.

    While the server commits, several reads can show half a change; that must not last.
    """
    deadline = time.monotonic() + QUIET
    while True:
        try:
            return question()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def strike(situation: Situation, store: JobStore, fault: AbstractContextManager[object]) -> None:
    """Do the operation while the fault is active, and check the result."""
    error: StoreUnavailable | None = None
    with fault:
        try:
            situation.operate(store)
        except StoreUnavailable as caught:
            error = caught
    situation.judge(error)


def sabotage(harness: Harness, make: Callable[[], Situation]) -> int:
    """Lose the connection at every moment that the harness can produce; how often it really was lost."""
    if harness.server is not None:
        with Proxy(harness.server) as proxy:
            return _through_proxy(proxy, harness.via(*proxy.address), make)
    return _at_commit(harness, make)


def _through_proxy(proxy: Proxy, store: JobStore, make: Callable[[], Situation]) -> int:
    count = _calibrate(proxy, store, make)
    struck = 0
    for moment in Moment:
        for request in range(1, count + 1):
            _warm(store)
            strike(make(), store, _armed(proxy, request, moment))
            struck += proxy.struck
    return struck


def _calibrate(proxy: Proxy, store: JobStore, make: Callable[[], Situation]) -> int:
    """How many requests the operation sends when nothing goes wrong."""
    _warm(store)
    situation = make()
    proxy.arm()
    situation.operate(store)
    count = proxy.requests
    situation.judge(None)
    assert count > 0, "the handle that Harness.via() gave does not go through the proxy"
    return count


@contextmanager
def _armed(proxy: Proxy, request: int, moment: Moment) -> Iterator[None]:
    proxy.arm(request, moment)
    yield


def _warm(store: JobStore) -> None:
    """Let the handle find its dead connections; within a few calls it must work again by itself."""
    for _ in range(SURPRISES):
        try:
            store.counts()
        except StoreUnavailable:
            continue
        return
    store.counts()


def _at_commit(harness: Harness, make: Callable[[], Situation]) -> int:
    moments: tuple[CommitMoment, ...] = get_args(CommitMoment)
    struck = 0
    for moment in moments:
        situation = make()
        fault = harness.commit_fault(harness.store, moment)
        if fault is not None:
            strike(situation, harness.store, fault)
            struck += 1
    if not struck:
        pytest.skip("the harness offers neither `server` nor `commit_fault`: no connection can be lost")
    return struck
