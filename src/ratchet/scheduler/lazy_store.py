"""`LazyStore`: the store of a scheduler, opened when it is first used, and the time it tells."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import cast

from ratchet.model.clock import Clock, DatabaseClock
from ratchet.model.errors import SchemaOutOfDate, StoreError
from ratchet.spi.store import JobStore, SendingStore

logger = logging.getLogger("ratchet")

#: A process that only submits asks for the database's time this often.
RESAMPLE_AFTER = 600.0


class LazyStore:
    """Opens the store at the first use, and checks or makes its schema once."""

    def __init__(self, open_store: Callable[[], JobStore], clock: Clock) -> None:
        self._open_store = open_store
        self._clock = clock
        self._lock = threading.RLock()
        self._sampled_at: float | None = None
        #: The store, if it was opened.
        self.opened: JobStore | None = None
        #: The store, if its schema was found right.
        self.checked: JobStore | None = None

    @property
    def raw(self) -> JobStore:
        """The store, whether or not its schema is right."""
        with self._lock:
            if self.opened is None:
                self.opened = self._open_store()
            return self.opened

    def check(self, *, auto_migrate: bool) -> JobStore:
        """The store, with its schema checked (or made) when this is first called."""
        with self._lock:
            store = self.raw
            if self.checked is None:
                self._prepare(store, auto_migrate)
                self.checked = store
                self._sample(store)
        return store

    def _prepare(self, store: JobStore, auto_migrate: bool) -> None:
        # Looked at first: a migration takes the write lock, which the caller of submit(within=…) may hold.
        try:
            store.check_schema()
        except SchemaOutOfDate:
            if not (auto_migrate or store.capabilities.migrates_itself or store.name == "sqlite"):
                raise
            store.migrate()

    def now(self) -> datetime:
        """The database's time, as last sampled; before the store is first used, this machine's."""
        if self._is_stale():
            self._sample(self.raw)
        return self._clock.now()

    def _is_stale(self) -> bool:
        return self._sampled_at is not None and self._clock.monotonic() - self._sampled_at > RESAMPLE_AFTER

    @property
    def sending(self) -> SendingStore | None:
        """The store, where it can be used without waiting: not if it is to be opened, checked or asked for its time."""
        store = self.checked
        if store is None or self._is_stale() or not store.capabilities.sends:
            return None
        return cast("SendingStore", store)

    def _sample(self, store: JobStore) -> None:
        if not isinstance(self._clock, DatabaseClock):
            return
        asked = self._clock.monotonic()
        self._sampled_at = asked
        try:
            told = store.database_time()
        except StoreError as error:
            logger.debug("the database's time could not be read: %s", error)
        else:
            self._clock.sample(told, self._clock.monotonic() - asked)
