"""Names the connections of a process, and ends the transactions that a dead one has left open."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ratchet.model.errors import StoreError
from ratchet.model.process import process_name

if TYPE_CHECKING:
    from ratchet.stores.sql.dialect import Dialect

log = logging.getLogger("ratchet.stores.sql")

# A server process ends some time after it was told to.
_LONGEST_WAIT = 2.0  # seconds
_PAUSE = 0.02

# A role may end its own sessions. One that is not idle is running a statement, which has its own timeout.
END_TRANSACTIONS = """
    SELECT pg_terminate_backend(a.pid) AS is_told
      FROM pg_stat_activity a
     WHERE a.datname = current_database() AND a.usename = current_user AND a.application_name = :name
       AND a.state LIKE 'idle in transaction%' AND a.pid <> pg_backend_pid()
"""


def connection_name(process: str | None = None) -> str:
    """What the connections of a process are called in ``pg_stat_activity``, unless the URL has a name for them."""
    return f"ratchet {process or process_name()}"


def end_transactions(dialect: Dialect, process: str) -> bool:
    """As `Dialect.end_transactions` has it."""
    found, until = False, time.monotonic() + _LONGEST_WAIT
    try:
        while time.monotonic() < until:
            with dialect.reading() as session:
                told = session.rows(END_TRANSACTIONS, {"name": connection_name(process)})
            if not told:
                break
            if not found:
                log.warning("%d transactions that %s has left open are ended", len(told), process)
            found = True
            time.sleep(_PAUSE)
    except StoreError as error:
        log.warning("the transactions that %s has left open cannot be ended: %s", process, error)
    return found
