"""
Completions: the ends of many runs, written whole and in one transaction.

Every statement that takes a job away from its run carries the fence. Successes, which most ends are,
have a way of their own (`successes`); everything else goes row by locked row through here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from ratchet.model.decision import (
    Completion,
    CompletionAnswer,
    CountCrash,
    Fail,
    HandBack,
    Reschedule,
    Retry,
    Succeed,
)
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dependants.batch_counters import BatchDeltas
from ratchet.stores.sql.dependants.callbacks import insert_failure_callbacks
from ratchet.stores.sql.dependants.edges import Effects, Ended, Settlement, settle_edges
from ratchet.stores.sql.finish.requeues import count_crashes, requeue
from ratchet.stores.sql.finish.runs import (
    WRITTEN_AS,
    ended_row,
    execution_row,
    requeued,
    resting_row,
    status_after,
)
from ratchet.stores.sql.finish.successes import write_successes
from ratchet.stores.sql.rows.failures import LEAVE_QUEUE, write_alerts, write_runs
from ratchet.stores.sql.rows.holdings import free_permits
from ratchet.stores.sql.rows.kept_keys import Run, free_keys, keep_keys, remember_runs
from ratchet.stores.sql.rows.locked import QueueRow, lock_cold_rows, lock_held_rows
from ratchet.stores.sql.rows.stream_registry import StreamRegistry
from ratchet.stores.sql.submit.submissions import insert_specs

END_RUNS = """
    UPDATE scheduler_job
       SET status = run.status, attempts = run.attempt, crashes = run.crashes, scheduled_at = run.scheduled_at,
           started_at = coalesce(run.started_at, scheduler_job.started_at), finished_at = run.finished_at,
           node_id = coalesce(run.node_id, scheduler_job.node_id), result = run.result, result_truncated = run.result_truncated,
           error = CASE WHEN run.status = 'SUCCEEDED' THEN NULL ELSE coalesce(run.error, scheduler_job.error) END,
           error_type = CASE WHEN run.status = 'SUCCEEDED' THEN NULL
                             WHEN run.error IS NULL THEN scheduler_job.error_type ELSE run.error_type END,
           dead_letter_reason = run.dead_letter_reason, dead_lettered_at = run.dead_lettered_at,
           expiry_due_at = CASE WHEN run.status = 'PENDING' AND run.started_at IS NULL
                                THEN scheduler_job.expiry_due_at ELSE NULL END
      FROM {rows run (job_id, status, attempt, crashes, scheduled_at, started_at, finished_at, node_id, result,
                      result_truncated, error, error_type, dead_letter_reason, dead_lettered_at)}
     WHERE scheduler_job.job_id = run.job_id
"""

SAVE_STATES = """
    UPDATE scheduler_job
       SET state = run.state
      FROM {rows run (job_id, state)}
     WHERE scheduler_job.job_id = run.job_id
"""

FIND_RUNS = """
    SELECT job_id, claim_id, status
      FROM scheduler_job_execution
     WHERE job_id {in ids uuid}
       AND ((job_id, claim_id) IN (SELECT run.job_id, run.claim_id FROM {rows run (job_id, claim_id)})) IS TRUE
"""


# Both locks in the order of ids, before successes and other ends take them in two portions.
ORDER_QUEUE_ROWS = """
    SELECT count(*) AS locked
      FROM (SELECT job_id FROM scheduler_job_queue WHERE job_id {in ids uuid} ORDER BY job_id {for update}) AS q
"""

ORDER_JOBS = """
    SELECT count(*) AS locked
      FROM (SELECT job_id FROM scheduler_job WHERE job_id {in ids uuid} ORDER BY job_id {for update}) AS j
"""


class Won(Struct, gc=False):
    """A completion whose claim held its job, where the job is now, and what follows from that."""

    completion: Completion
    status: JobStatus
    business_key: str | None = None
    batch_id: UUID | None = None
    has_dependants: bool = False
    target: str = ""  # known where an alert needs it
    alerted: bool = False

    @property
    def has_crashed(self) -> bool:
        """True where key, permit, alert and run have been written with the crash."""
        return isinstance(self.completion.decision, CountCrash)


class Round:
    """
    Completions of different jobs on their way into the store.

    First every claim is compared and what its run changes is written; then what follows for others.
    """

    def __init__(
        self, session: Session, streams: StreamRegistry, completions: Sequence[Completion], now: datetime
    ) -> None:
        self.session = session
        self.streams = streams
        self.completions = sorted(completions, key=lambda completion: completion.claim.job_id.int)
        self.now = now
        self.won: dict[int, Won] = {}  # by the number of the id: hashes and comparisons of ids are Python's

    def run(self, alert_window: timedelta) -> dict[int, CompletionAnswer]:
        """Write everything; the answer for each job, by the number of its id."""
        self._end_runs(alert_window)
        won = list(self.won.values())
        self._save_states(won)
        settlement = self._settle(won)
        self._record_alerts(won, alert_window)
        self._insert_callbacks(won, settlement)
        self._let_go(won)
        answers = {
            number: _answer(one, settlement.find(one.completion.claim.job_id))
            for number, one in self.won.items()
        }
        answers.update(self._find_replayed())
        return answers

    # --- under the fence ------------------------------------------------------------------------

    def _end_runs(self, alert_window: timedelta) -> None:
        dialect = self.session.dialect
        by_number = {one.claim.job_id.int: one for one in self.completions}
        successes = [one for one in self.completions if type(one.decision) is Succeed]
        others = [one for one in self.completions if type(one.decision) is not Succeed]
        if successes and others and not dialect.one_writer:
            ids = [one.claim.job_id for one in self.completions]
            self.session.rows(ORDER_QUEUE_ROWS, {"ids": ids})
            self.session.rows(ORDER_JOBS, {"ids": ids})
        if successes:
            for number, facts in write_successes(self.session, successes, self.now).items():
                self.won[number] = Won(by_number[number], JobStatus.SUCCEEDED, *facts)
        if others:
            self._end_others(others, alert_window)

    def _end_others(self, completions: Sequence[Completion], alert_window: timedelta) -> None:
        held = lock_held_rows(self.session, [one.claim for one in completions])
        jobs = lock_cold_rows(self.session, held)
        mine = [one for one in completions if one.claim.job_id in jobs]
        crashed = [one for one in mine if isinstance(one.decision, CountCrash)]
        self._write([one for one in mine if not isinstance(one.decision, CountCrash)], held)
        for one in mine:
            job = jobs[one.claim.job_id]
            self.won[job.job_id.int] = Won(
                one,
                status_after(one.decision),
                job.business_key,
                job.batch_id,
                job.has_dependants,
                job.target,
            )
        for one in crashed:
            self._count_crash(one, held[one.claim.job_id], alert_window)

    def _write(self, completions: Sequence[Completion], held: Mapping[UUID, QueueRow]) -> None:
        gone: list[UUID] = []
        back: list[QueueRow] = []
        rows: list[tuple[object, ...]] = []
        runs: list[tuple[object, ...]] = []
        for one in completions:
            row = held[one.claim.job_id]
            if isinstance(one.decision, Succeed | Fail):
                gone.append(row.job_id)
                rows.append(ended_row(one, row, self.now))
            else:
                due_at = one.decision.at if isinstance(one.decision, Retry | Reschedule) else row.scheduled_at
                back.append(requeued(one, row, due_at, self.now))
                if one.started_at is not None or one.lingers or not isinstance(one.decision, HandBack):
                    rows.append(resting_row(one, back[-1], due_at))
            if one.started_at is not None or not isinstance(one.decision, HandBack):
                runs.append(execution_row(one, row, self.now))
        if gone:
            self.session.execute(LEAVE_QUEUE, {"ids": gone})
        requeue(self.session, back, self.now)
        if rows:
            self.session.execute(END_RUNS, {"run": rows})
        write_runs(self.session, runs)

    def _count_crash(self, completion: Completion, row: QueueRow, alert_window: timedelta) -> None:
        decision = completion.decision
        assert isinstance(decision, CountCrash)
        crashes = count_crashes(
            self.session,
            self.streams,
            {row.job_id: row},
            detail=decision.detail,
            max_crashes=decision.max_crashes,
            now=self.now,
            window=alert_window,
            started_at={row.job_id: completion.started_at},
            lingers=completion.lingers,
        )
        if crashes.dead_lettered:
            won = self.won[row.job_id.int]
            won.status = JobStatus.FAILED
            won.alerted = row.job_id in crashes.alerted

    # --- what follows ---------------------------------------------------------------------------

    def _save_states(self, won: Sequence[Won]) -> None:
        states = [
            (one.completion.claim.job_id, one.completion.state)
            for one in won
            if one.completion.state is not None
        ]
        if states:
            self.session.execute(SAVE_STATES, {"run": states})

    def _settle(self, won: Sequence[Won]) -> Settlement:
        deltas = BatchDeltas()
        ended: list[Ended] = []
        for one in won:
            if one.batch_id is None and not one.has_dependants:
                continue
            completion = one.completion
            if one.batch_id is not None and isinstance(completion.decision, Succeed | Retry | Fail):
                deltas.count_run(one.batch_id, completion.started_at, completion.finished_at or self.now)
            if one.status.is_terminal:
                ended.append(
                    Ended(
                        job_id=completion.claim.job_id,
                        status=one.status,
                        has_dependants=one.has_dependants,
                        batch_id=one.batch_id,
                        verdicts=completion.verdicts,
                    )
                )
        if len(ended) > 1:
            ended.sort(
                key=lambda one: one.job_id.int
            )  # of several that finish a batch the last by id is told
        return settle_edges(self.session, ended, now=self.now, deltas=deltas)

    def _record_alerts(self, won: Sequence[Won], window: timedelta) -> None:
        alerts = []
        for one in won:
            decision = one.completion.decision
            if isinstance(decision, Fail):
                job_id, error = one.completion.claim.job_id, decision.error.summary
                alerts.append((job_id, one.target, decision.error_hash, error, decision.reason))
        alerted = write_alerts(self.session, alerts, self.now, window=window)
        for job_id in alerted:
            self.won[job_id.int].alerted = True

    def _insert_callbacks(self, won: Sequence[Won], settlement: Settlement) -> None:
        callbacks = [one.completion.callback for one in won if one.completion.callback is not None]
        if callbacks:
            insert_specs(self.session, self.streams, callbacks, now=self.now)
        # those whose failure no worker has seen coming: their condition raised, or a crash was one too many
        unseen = [job.job_id for job in settlement.canceled if job.status is JobStatus.FAILED]
        for one in won:
            if one.has_crashed and one.status is JobStatus.FAILED and one.completion.callback is None:
                unseen.append(one.completion.claim.job_id)
        insert_failure_callbacks(self.session, self.streams, unseen, now=self.now)

    def _let_go(self, won: Sequence[Won]) -> None:
        freed: list[UUID] = []
        kept: list[Run] = []
        remembered: list[Run] = []
        for one in won:
            if one.business_key is None:
                continue
            claim = one.completion.claim
            run = (claim.job_id, claim.claim_id, claim.node_id)
            if not one.status.is_terminal:
                if one.completion.lingers:
                    remembered.append(run)
            elif not one.has_crashed:
                if one.completion.lingers:
                    kept.append(run)
                else:
                    freed.append(claim.job_id)
        remember_runs(self.session, remembered, self.now)
        keep_keys(self.session, kept)
        free_keys(self.session, freed)
        ended = (one.completion.claim for one in won if not one.completion.lingers and not one.has_crashed)
        free_permits(self.session, self.streams, ended)

    def _find_replayed(self) -> dict[int, CompletionAnswer]:
        lost = [one for one in self.completions if one.claim.job_id.int not in self.won]
        if not lost:
            return {}
        pairs = [(one.claim.job_id, one.claim.claim_id) for one in lost]
        rows = self.session.rows(FIND_RUNS, {"ids": [job_id for job_id, _ in pairs], "run": pairs})
        written = {job_id: status for job_id, _, status in rows}
        return {one.claim.job_id.int: _replayed(one, written.get(one.claim.job_id)) for one in lost}


def complete_runs(
    session: Session,
    streams: StreamRegistry,
    completions: Sequence[Completion],
    *,
    now: datetime,
    alert_window: timedelta,
) -> list[CompletionAnswer]:
    """Apply *completions* in this transaction, as `JobTerminalStore.complete` says; answers in order."""
    numbers = [one.claim.job_id.int for one in completions]
    if len(set(numbers)) == len(numbers):
        found = Round(session, streams, completions, now).run(alert_window)
        return [found[number] for number in numbers]
    # A job stands once in a statement. What names it again goes into the next round, and finds there
    # what this one did.
    answers: dict[int, CompletionAnswer] = {}
    waiting = list(enumerate(completions))
    while waiting:
        first: dict[int, tuple[int, Completion]] = {}
        later: list[tuple[int, Completion]] = []
        for position, one in waiting:
            if first.setdefault(one.claim.job_id.int, (position, one))[0] != position:
                later.append((position, one))
        found = Round(session, streams, [one for _, one in first.values()], now).run(alert_window)
        answers.update((position, found[number]) for number, (position, _) in first.items())
        waiting = later
    return [answers[position] for position in range(len(completions))]


def _answer(one: Won, effects: Effects | None) -> CompletionAnswer:
    job_id = one.completion.claim.job_id
    if effects is None:  # nothing followed, as for most jobs
        return CompletionAnswer(
            job_id=job_id, won=True, alerted=one.alerted, dead_lettered=one.status is JobStatus.FAILED
        )
    return CompletionAnswer(
        job_id=job_id,
        won=True,
        alerted=one.alerted,
        dead_lettered=one.status is JobStatus.FAILED,
        released=tuple(effects.released),
        canceled=tuple(effects.canceled),
        finished_batches=tuple(effects.finished_batches),
    )


def _replayed(one: Completion, written: str | None) -> CompletionAnswer:
    """The answer of a completion that found its claim gone; its own execution row says that it had won before."""
    own = written in WRITTEN_AS[type(one.decision)]
    return CompletionAnswer(
        job_id=one.claim.job_id, won=own, replayed=own, dead_lettered=own and isinstance(one.decision, Fail)
    )
