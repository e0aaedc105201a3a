"""
Whether a caller's connection leads to this store's own tables.

An installation is recognized by the moment in which its first migration was applied, which is stored in it. Addresses
and names of servers would not do: after a failover, or behind a pooler, the same tables are elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from weakref import WeakKeyDictionary

from ratchet.model.errors import ConfigurationError, StoreUnavailable

#: The place of a connection that leads here wherever it is.
EVERYWHERE = object()


class Installation:
    """Remembers which connections lead here, and compares others once."""

    def __init__(self, asked: Callable[[], datetime | None], where: Callable[[], str]) -> None:
        #: Asks this store's own connections when it was installed.
        self._asked = asked
        self._where = where
        self._ours: datetime | None = None
        self._lock = threading.Lock()
        #: What leads here, and in which place (a search path, say) it was when that was seen.
        self._known: WeakKeyDictionary[object, object] = WeakKeyDictionary()

    def knows(self, connection: object, place: object = "") -> bool:
        """True if *connection*, in this place, is known to lead here."""
        try:
            with self._lock:
                return self._known.get(connection) in (place, EVERYWHERE)
        except TypeError:
            return False

    def own(self, connection: object) -> None:
        """*connection* is one of the store's own."""
        self._trust(connection, EVERYWHERE)

    def _trust(self, connection: object, place: object) -> None:
        try:
            with self._lock:
                self._known[connection] = place
        except TypeError:
            pass  # sqlite3's cannot be referred to weakly; its files are compared, at no cost

    def require_same(
        self, connection: object, place: object, theirs: datetime | None, described: str
    ) -> None:
        """
        Refuse *connection* if what it leads to was installed at another time than this store.

        *theirs* is None where it cannot be read (no privilege, or an older snapshot). What cannot be compared is not refused.
        """
        if theirs is not None and theirs != self._ours:
            # Asked again: the tables may have been made anew since.
            try:
                self._ours = self._asked()
            except StoreUnavailable:
                return
            if self._ours is not None and theirs != self._ours:
                raise another_database(described, self._where())
        self._trust(connection, place)


def another_database(described: str, where: str) -> ConfigurationError:
    """The error for a connection to a database that is not this store's."""
    return ConfigurationError(
        f"within= got a connection to another database ({described}) than this scheduler's ({where}), so the job would be "
        f"stored where no worker of this scheduler looks; pass a connection to the scheduler's own database"
    )
