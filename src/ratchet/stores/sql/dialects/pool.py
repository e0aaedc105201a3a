"""`Pool`: lends the connections of one process to one server, a limited number at once."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from ratchet.model.errors import StoreUnavailable

#: Connections inherited by a fork; closing them would end the parent's sessions.
_abandoned: list[Any] = []


class Lendable(Protocol):
    """A connection that says when it was last used."""

    used_at: float


C = TypeVar("C", bound=Lendable)
P = TypeVar("P")


def _slots(size: int) -> SimpleQueue[None]:
    """A semaphore: get one, put it back. Every submission takes one: 0.1 µs; that of `threading`, in Python, takes 1.3 µs."""
    free: SimpleQueue[None] = SimpleQueue()
    for _ in range(size):
        free.put(None)
    return free


class PoolExhausted(StoreUnavailable):
    """All connections of this process are in use."""


class Pool(ABC, Generic[C, P]):
    """
    Opens, lends and closes connections, each for a purpose; a forked child gets its own.

    The caller connects, and so learns at once why it cannot.
    """

    #: What the server is called in messages.
    server: str

    def __init__(self, *, size: int, connect_timeout: float) -> None:
        self._connect_timeout = connect_timeout
        self._size = size
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[C] = []
        self._slots = _slots(self._size)
        # blocks of user code may take long; the engine's own calls must not wait for them
        self._user_slots = _slots(max(self._size - 2, 1))

    def _take(self, purpose: P, for_user: bool) -> C:
        """A connection without a transaction; give it back."""
        if self._pid != os.getpid():
            _abandoned.append(self._idle)
            self._start()
        if for_user:
            self._acquire(self._user_slots)
        try:
            self._acquire(self._slots)
            try:
                return self._idle_one(purpose) or self._connect(purpose)
            except BaseException:
                self._returned()
                raise
        except BaseException:
            if for_user:
                self._user_slots.put(None)
            raise

    def _acquire(self, slots: SimpleQueue[None]) -> None:
        try:
            slots.get(timeout=self._connect_timeout)
        except Empty:
            raise self._exhausted() from None

    def give_back(self, connection: C, *, for_user: bool = False) -> None:
        """Return what was lent; one that is broken, or still in a transaction, is closed."""
        try:
            if self._is_free(connection):
                connection.used_at = time.monotonic()
                with self._lock:
                    self._idle.append(connection)
            else:
                self._shut(connection)
        finally:
            self._returned()
            if for_user:
                self._user_slots.put(None)

    def _returned(self) -> None:
        self._slots.put(None)

    def discard_idle(self) -> None:
        """Close the connections that nobody uses: after one was lost, the others are not trusted."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._shut(connection)

    def close(self) -> None:
        """Close what is idle; what is lent is closed by whoever uses it last, or reused."""
        if self._pid == os.getpid():
            self.discard_idle()

    def _exhausted(self) -> StoreUnavailable:
        return PoolExhausted(
            f"all {self._size} connections of this process to {self.server} have been in use for "
            f"{self._connect_timeout:g} s; raise pool_size, or keep transactions short"
        )

    @abstractmethod
    def _idle_one(self, purpose: P) -> C | None:
        """An idle one that may be lent for *purpose*; those that were idle for too long are closed."""

    @abstractmethod
    def _connect(self, purpose: P) -> C:
        """A new one; `StoreUnavailable` says why there is none."""

    @abstractmethod
    def _is_free(self, connection: C) -> bool:
        """True if it is open and in no transaction."""

    @abstractmethod
    def _shut(self, connection: C) -> None:
        """Close it, whatever its state."""
