"""Signals in SQL: delivered to the jobs that wait, or kept for the first that will."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from ratchet.model.composition import SignalSpec
from ratchet.stores.sql.database import Session, SqlPart
from ratchet.stores.sql.dependants.releases import release_ready
from ratchet.stores.sql.rows.kept_signals import CONSUME, delivered, lock_signal_keys

#: How long a signal's id is remembered where the signal says nothing itself, so that sending it again changes nothing.
REMEMBERED = timedelta(hours=1)

FIND_OLD_KEY_ROWS = """
    SELECT signal_id
      FROM scheduler_signal
     WHERE consumed_by = signal_id AND sent_at <= :forgotten_at
     ORDER BY signal_id
     LIMIT :limit
    {for update skip locked}
"""

INSERT_SIGNAL = """
    INSERT INTO scheduler_signal (signal_id, signal_key, job_id, payload, rejected, sent_at, keep_until)
    VALUES (:signal_id, :key, :job_id, :payload, :rejected, :now, :keep_until)
        ON CONFLICT (signal_id) DO NOTHING
"""

FIND_WAITERS = """
    SELECT job_id
      FROM scheduler_job
     WHERE signal_key = :key AND held_at IS NOT NULL AND status = 'WAITING' AND signal IS NULL
       AND job_id = COALESCE(CAST(:job_id AS {uuid}), job_id)
     ORDER BY job_id
    {for update}
"""

STORE_SIGNAL = """
    UPDATE scheduler_job
       SET signal = :signal, signal_due_at = NULL
     WHERE job_id {in ids uuid}
"""

LIST_WAITERS = """
    SELECT job_id
      FROM scheduler_job
     WHERE signal_key = :key AND held_at IS NOT NULL AND status = 'WAITING' AND signal IS NULL
     ORDER BY job_id
     LIMIT :limit
"""

FIND_FORGOTTEN = """
    SELECT signal_id
      FROM scheduler_signal
     WHERE (keep_until <= :now OR (keep_until IS NULL AND sent_at <= :forgotten_at))
       AND (consumed_by IS NULL OR consumed_by <> signal_id)
     ORDER BY signal_id
     LIMIT :limit
    {for update skip locked}
"""

DELETE_SIGNALS = """
    DELETE FROM scheduler_signal WHERE signal_id {in ids uuid}
"""


class SqlSignals(SqlPart):
    """Sends signals, and deletes old ones."""

    def send_signal(self, signal: SignalSpec, *, now: datetime, within: object | None = None) -> list[UUID]:
        """
        Release every job WAITING for the key (only ``job_id``, if it is set), storing the signal on it.

        Released nobody: kept until ``keep_until`` for the first job submitted to wait for it.
        """
        return self.change(lambda session: _send(session, signal, now), within)

    def waiting_for(self, key: str, *, limit: int = 100) -> list[UUID]:
        """The jobs that wait for a key, oldest first."""
        rows = self.database.read(lambda session: session.rows(LIST_WAITERS, {"key": key, "limit": limit}))
        return [job_id for (job_id,) in rows]

    def purge_signals(self, *, now: datetime, limit: int) -> int:
        """Delete kept signals whose time is over, and the ids of delivered ones that need not be remembered any more."""
        values = {"now": now, "forgotten_at": now - REMEMBERED, "limit": limit}

        def purge(session: Session) -> int:
            signals = [signal_id for (signal_id,) in session.rows(FIND_FORGOTTEN, values)]
            key_rows = [row_id for (row_id,) in session.rows(FIND_OLD_KEY_ROWS, values)]
            if signals or key_rows:
                session.execute(DELETE_SIGNALS, {"ids": signals + key_rows})
            return len(signals)

        return self.database.run(purge)


def _send(session: Session, signal: SignalSpec, now: datetime) -> list[UUID]:
    lock_signal_keys(session, [signal.key], now)
    values = {
        "signal_id": signal.signal_id,
        "key": signal.key,
        "job_id": signal.job_id,
        "payload": signal.payload,
        "rejected": signal.rejected,
        "keep_until": signal.keep_until,
        "now": now,
    }
    if not session.execute(INSERT_SIGNAL, values):
        return []  # sent before
    waiters = [row[0] for row in session.rows(FIND_WAITERS, {"key": signal.key, "job_id": signal.job_id})]
    if not waiters:
        return []
    document = delivered(signal.key, signal.payload, signal.rejected, now)
    session.execute(STORE_SIGNAL, {"ids": waiters, "signal": document})
    session.execute(CONSUME, {"signal_id": signal.signal_id, "job_id": waiters[0]})
    release_ready(session, waiters, now)
    return waiters  # those that also wait for a parent have their signal now
