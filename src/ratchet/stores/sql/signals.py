"""Signals in SQL: delivered to the jobs that wait, or kept for the first that will."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from uuid import UUID

from msgspec import json

from ratchet.model.composition import SignalSpec
from ratchet.stores.sql.database import Session, SqlPart
from ratchet.stores.sql.dependants.releases import release_ready

#: How long a signal's id is remembered where the signal says nothing itself, so that sending it again changes nothing.
REMEMBERED = timedelta(hours=1)

# A gate is a row whose id follows from its key; its lock is all that matters. A signal that is being
# sent and a waiter that is being stored do not see each other before they commit, so each of them
# passes the gate first, and the second then sees what the first has written. The gate's own id in
# consumed_by keeps it out of the kept signals.
#
# Not an advisory lock: a bulk submission of waiters would need thousands of them at once.
FIND_GATES = """
    SELECT signal_id
      FROM scheduler_signal
     WHERE signal_id {in gates uuid}
     ORDER BY signal_id
    {for update}
"""

FIND_OLD_GATES = """
    SELECT signal_id
      FROM scheduler_signal
     WHERE consumed_by = signal_id AND sent_at <= :forgotten_at
     ORDER BY signal_id
     LIMIT :limit
    {for update skip locked}
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


def delivered(key: str, payload: str | None, rejected: str | None, now: datetime) -> str:
    """A signal as it is stored on the job that it released: JSON, the payload in it still as text."""
    document = {"key": key, "payload": payload, "rejected": rejected, "delivered_at": now}
    return json.encode(document).decode()


def consume_kept_signals(
    session: Session, waiters: Sequence[tuple[UUID, str]], *, now: datetime
) -> dict[UUID, str]:
    """
    The delivered signal (JSON for the ``signal`` column) of each (job id, signal key) that a kept signal
    waited for; each kept signal goes to one job, the earliest of *waiters* first.

    Call it in the transaction that stores the waiters, before or after their rows are written, once,
    with all of them: it takes the keys' gates in an order that cannot deadlock. A job without an
    answer is stored WAITING, and the next signal will find it.
    """
    if not waiters:
        return {}
    _pass_gates(session, {key for _, key in waiters}, now)
    signals: dict[UUID, str] = {}
    for job_id, key in waiters:
        kept = session.row(FIND_KEPT, {"key": key, "job_id": job_id, "now": now})
        if kept is not None:
            signal_id, payload, rejected = kept
            session.execute(CONSUME, {"signal_id": signal_id, "job_id": job_id})
            signals[job_id] = delivered(key, payload, rejected, now)
    return signals


def consume_kept_signal(session: Session, key: str, job_id: UUID, now: datetime) -> str | None:
    """`consume_kept_signals` for one job; None: it has to wait."""
    return consume_kept_signals(session, [(job_id, key)], now=now).get(job_id)


def _pass_gates(session: Session, keys: Iterable[str], now: datetime) -> None:
    if session.dialect.one_writer:
        return  # nobody else writes before this transaction ends
    gates = {_gate(key): key for key in keys}
    missing = set(gates)
    while missing:  # more than once only where a gate was purged between the two statements
        # every insert before any lock, each in the same order: whoever holds a lock waits for no insert
        session.insert_rows(
            "scheduler_signal",
            ("signal_id", "signal_key", "sent_at", "consumed_by"),
            [(gate, gates[gate], now, gate) for gate in sorted(missing)],
            on_conflict_do_nothing=True,
        )
        missing -= {gate for (gate,) in session.rows(FIND_GATES, {"gates": sorted(missing)})}


def _gate(key: str) -> UUID:
    return UUID(bytes=sha256(b"ratchet signal gate " + key.encode()).digest()[:16])


class SqlSignals(SqlPart):
    """Signals."""

    def send_signal(self, signal: SignalSpec, *, now: datetime) -> list[UUID]:
        """
        Release every job WAITING for the key (only ``job_id``, if it is set), storing the signal on it.

        Released nobody: kept until ``keep_until`` for the first job submitted to wait for it.
        """
        return self.database.run(lambda session: _send(session, signal, now))

    def waiting_for(self, key: str, *, limit: int = 100) -> list[UUID]:
        """The jobs that wait for a key, oldest first."""
        rows = self.database.read(lambda session: session.rows(LIST_WAITERS, {"key": key, "limit": limit}))
        return [job_id for (job_id,) in rows]

    def purge_signals(self, *, now: datetime, limit: int) -> int:
        """Delete kept signals whose time is over, and what is remembered of delivered ones."""
        values = {"now": now, "forgotten_at": now - REMEMBERED, "limit": limit}

        def purge(session: Session) -> int:
            signals = [signal_id for (signal_id,) in session.rows(FIND_FORGOTTEN, values)]
            gates = [gate for (gate,) in session.rows(FIND_OLD_GATES, values)]
            if signals or gates:
                session.execute(DELETE_SIGNALS, {"ids": signals + gates})
            return len(signals)

        return self.database.run(purge)


def _send(session: Session, signal: SignalSpec, now: datetime) -> list[UUID]:
    _pass_gates(session, [signal.key], now)
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
    return waiters  # also those that wait for a parent, too: they have their signal
