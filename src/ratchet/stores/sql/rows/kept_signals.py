"""Signals that are kept for the first job that waits for them, and the lock of a signal's key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from uuid import UUID

from msgspec import json

from ratchet.stores.sql.database import Session

# A signal that is being sent and a waiter that is being stored do not see each other before they commit. So each of
# them locks the key first, and the second then sees what the first has written. What is locked is a row whose id
# follows from the key; its own id in consumed_by keeps it out of the kept signals.
#
# Not an advisory lock: a bulk submission of waiters would need thousands of them at once.
LOCK_KEY_ROWS = """
    SELECT signal_id
      FROM scheduler_signal
     WHERE signal_id {in gates uuid}
     ORDER BY signal_id
    {for update}
"""

FIND_KEPT = """
    SELECT signal_id, payload, rejected
      FROM scheduler_signal
     WHERE signal_key = :key AND consumed_by IS NULL AND keep_until > :now
       AND (job_id IS NULL OR job_id = :job_id)
     ORDER BY signal_id
     LIMIT 1
    {for update}
"""

CONSUME = """
    UPDATE scheduler_signal SET consumed_by = :job_id WHERE signal_id = :signal_id
"""


def delivered(key: str, payload: str | None, rejected: str | None, now: datetime) -> str:
    """A signal as it is stored on the job that it released: JSON, the payload in it still as text."""
    document = {"key": key, "payload": payload, "rejected": rejected, "delivered_at": now}
    return json.encode(document).decode()


def consume_kept_signals(
    session: Session, waiters: Sequence[tuple[UUID, str]], *, now: datetime
) -> dict[UUID, str]:
    """
    The delivered signal (JSON for the ``signal`` column) of each waiter for which one was kept.

    *waiters* are (job id, signal key); each kept signal goes to one job, the earliest first. Call it once, with all
    of them, in the transaction that stores the waiters, before or after their rows are written: it locks the keys in
    an order that cannot deadlock. A job without an answer is stored WAITING, and the next signal will find it.
    """
    if not waiters:
        return {}
    lock_signal_keys(session, {key for _, key in waiters}, now)
    signals: dict[UUID, str] = {}
    for job_id, key in waiters:
        kept = session.row(FIND_KEPT, {"key": key, "job_id": job_id, "now": now})
        if kept is not None:
            signal_id, payload, rejected = kept
            session.execute(CONSUME, {"signal_id": signal_id, "job_id": job_id})
            signals[job_id] = delivered(key, payload, rejected, now)
    return signals


def lock_signal_keys(session: Session, keys: Iterable[str], now: datetime) -> None:
    """Keep others from sending these signals, and from storing jobs that wait for them, until the transaction ends."""
    if session.dialect.one_writer:
        return  # nobody else writes before this transaction ends
    rows = {_row_of(key): key for key in keys}
    missing = set(rows)
    while missing:  # more than once only where a row was purged between the two statements
        # every insert before any lock, each in the same order: whoever holds a lock waits for no insert
        session.insert_rows(
            "scheduler_signal",
            ("signal_id", "signal_key", "sent_at", "consumed_by"),
            [(row_id, rows[row_id], now, row_id) for row_id in sorted(missing)],
            on_conflict_do_nothing=True,
        )
        missing -= {row_id for (row_id,) in session.rows(LOCK_KEY_ROWS, {"gates": sorted(missing)})}
    session.hold("scheduler_signal", "signal_id", rows)


def _row_of(key: str) -> UUID:
    return UUID(bytes=sha256(b"ratchet signal gate " + key.encode()).digest()[:16])
