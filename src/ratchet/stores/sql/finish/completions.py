"""
Completions: the ends of many runs, written whole and in one transaction.

`complete_runs` is the entry. Every statement that takes a job away from its run carries the fence. Most runs end in
success, so successes have statements of their own: one where the product can change several tables in one statement,
elsewhere four or five, however many runs end. All other ends go through locked rows. At the bottom are the rows
themselves: a decision, written as columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from ratchet.model.decision import (
    Completion,
    CompletionAnswer,
    CountCrash,
    Decision,
    Fail,
    HandBack,
    Reschedule,
    Retry,
    Succeed,
)
from ratchet.model.job import ExecutionStatus
from ratchet.model.runs import run_outcome
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dependants.batch_counters import BatchDeltas
from ratchet.stores.sql.dependants.callbacks import insert_failure_callbacks
from ratchet.stores.sql.dependants.edges import Effects, EffectsByJob, EndedJob, settle_edges
from ratchet.stores.sql.finish.requeues import count_crashes, held_back, requeue
from ratchet.stores.sql.rows.failures import LEAVE_QUEUE, FailureNote, write_alerts, write_runs
from ratchet.stores.sql.rows.keys_and_permits import (
    Run,
    free_keys,
    free_permits,
    keep_keys,
    remember_runs,
)
from ratchet.stores.sql.rows.locked import QueueRow, lock_cold_rows, lock_held_rows
from ratchet.stores.sql.rows.stream_registry import StreamRegistry
from ratchet.stores.sql.submit.submissions import insert_specs

# --- successes ----------------------------------------------------------------------------------

# The materialized list drives everything, restricted to what the delete returned: joining it with the
# queue would let the planner choose by statistics, which are always wrong for a queue.
# Measured on PostgreSQL: 1 to 20 successes take a third less CPU than in steps, 500 take half.
# The answer names only jobs that are not held, or from whose end something follows: as a rule it is empty.
SUCCEED = """
    WITH given AS MATERIALIZED (
        SELECT job_id, claim_id, attempt, crashes, scheduled_at, started_at, finished_at, node_id, result,
               result_truncated
          FROM {rows run (job_id, claim_id, attempt, crashes, scheduled_at, started_at, finished_at, node_id, result,
                          result_truncated)}
    ), gone AS (
        DELETE FROM scheduler_job_queue
         WHERE job_id {in ids uuid} AND status = 'RUNNING'
           AND /* fence */ ((job_id, claim_id) IN (SELECT given.job_id, given.claim_id FROM given)) IS TRUE /* end fence */
        RETURNING job_id
    ), won AS MATERIALIZED (
        SELECT * FROM given WHERE (job_id IN (SELECT gone.job_id FROM gone)) IS TRUE
    ), ran AS (
        INSERT INTO scheduler_job_execution
               (job_id, claim_id, attempt, node_id, scheduled_at, started_at, finished_at, status, counted)
        SELECT job_id, claim_id, attempt, node_id, scheduled_at, started_at, finished_at, 'SUCCEEDED', true
          FROM won
    ), ended AS (
        UPDATE scheduler_job AS j
           SET status = 'SUCCEEDED', attempts = won.attempt, crashes = won.crashes, scheduled_at = won.scheduled_at,
               started_at = won.started_at, finished_at = won.finished_at, node_id = won.node_id, result = won.result,
               result_truncated = won.result_truncated, error = NULL, error_type = NULL, expiry_due_at = NULL
          FROM won
         WHERE j.job_id = won.job_id
        RETURNING j.job_id, j.business_key, j.batch_id, j.has_dependants
    )
    SELECT job_id, true AS is_won, business_key, batch_id, has_dependants FROM ended
     WHERE business_key IS NOT NULL OR batch_id IS NOT NULL OR has_dependants
     UNION ALL
    SELECT job_id, false, NULL, NULL, false FROM given WHERE (job_id IN (SELECT ended.job_id FROM ended)) IS NOT TRUE
"""

# The same in steps. Nobody can interfere between them: there is one writer, or the rows stay locked.
LEAVE_HELD_ROWS = """
    DELETE FROM scheduler_job_queue
     WHERE job_id {in ids uuid} AND status = 'RUNNING'
       AND /* fence */ ((job_id, claim_id) IN (SELECT run.job_id, run.claim_id
                                                 FROM {rows run (job_id, claim_id)})) IS TRUE /* end fence */
    RETURNING job_id
"""

SUCCESS_COLUMNS = (
    "job_id",
    "attempts",
    "crashes",
    "scheduled_at",
    "started_at",
    "finished_at",
    "node_id",
    "result",
    "result_truncated",
    "status",
    "error",
    "error_type",
    "expiry_due_at",
)

FIND_NOT_PLAIN = """
    SELECT job_id, business_key, batch_id, has_dependants
      FROM scheduler_job
     WHERE job_id {in ids uuid} AND (business_key IS NOT NULL OR batch_id IS NOT NULL OR has_dependants)
"""

#: Business key, batch, and whether it has dependants: these say whether anything follows from a job's end.
Facts: TypeAlias = tuple[str | None, UUID | None, bool]
PLAIN: Facts = (None, None, False)

#: The columns of a successful run; the others are empty.
SUCCESS_RUN_COLUMNS = (
    "job_id",
    "claim_id",
    "attempt",
    "node_id",
    "scheduled_at",
    "started_at",
    "finished_at",
    "status",
    "counted",
)

# --- all other ends ------------------------------------------------------------------------------

#: How the history records the runs of each decision. CANCELED is none of them: a canceled run has not won.
WRITTEN_AS = {
    Succeed: {ExecutionStatus.SUCCEEDED},
    Retry: {ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT},
    Fail: {ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT},
    Reschedule: {ExecutionStatus.RESCHEDULED},
    HandBack: {ExecutionStatus.HANDED_BACK},
    CountCrash: {ExecutionStatus.CRASHED},
}


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


# Successes and other ends lock their rows in two portions. Before that, all of them are locked in the order of ids.
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
        """True where key, permit and run have been written with the crash."""
        return isinstance(self.completion.decision, CountCrash)


class _Completions:
    """
    Completions of different jobs, written in one transaction.

    First every claim is compared and what its run changes is written; then what follows for others.
    """

    def __init__(
        self, session: Session, streams: StreamRegistry, completions: Sequence[Completion], now: datetime
    ) -> None:
        self.session = session
        self.streams = streams
        self.completions = sorted(completions, key=lambda completion: completion.claim.job_id.int)
        self.now = now
        self.crashes: list[FailureNote] = []
        self.won: dict[int, Won] = {}  # by the number of the id: Python hashes a UUID ten times slower

    def run(self, alert_window: timedelta) -> dict[int, CompletionAnswer]:
        """Write everything; the answer for each job, by the number of its id."""
        self._end_runs()
        won = list(self.won.values())
        self._save_states(won)
        effects = self._update_dependants(won)
        self._insert_callbacks(won, effects)
        self._free_keys(won)
        self._free_permits(won)
        self._record_alerts(won, alert_window)
        answers = {
            number: _answer(one, effects.find(one.completion.claim.job_id) if effects else None)
            for number, one in self.won.items()
        }
        answers.update(self._find_replayed())
        return answers

    # --- under the fence ------------------------------------------------------------------------

    def _end_runs(self) -> None:
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
            self._end_others(others)

    def _end_others(self, completions: Sequence[Completion]) -> None:
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
            self._count_crash(one, held[one.claim.job_id])

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
                if one.started_at is not None or one.still_running or not isinstance(one.decision, HandBack):
                    rows.append(resting_row(one, back[-1], due_at))
            if one.started_at is not None or not isinstance(one.decision, HandBack):
                runs.append(execution_row(one, row, self.now))
        if gone:
            self.session.execute(LEAVE_QUEUE, {"ids": gone})
        requeue(self.session, back, self.now)
        if rows:
            self.session.execute(END_RUNS, {"run": rows})
        write_runs(self.session, runs)

    def _count_crash(self, completion: Completion, row: QueueRow) -> None:
        decision = completion.decision
        assert isinstance(decision, CountCrash)
        crashes = count_crashes(
            self.session,
            self.streams,
            {row.job_id: row},
            detail=decision.detail,
            max_crashes=decision.max_crashes,
            now=self.now,
            started_at={row.job_id: completion.started_at},
            still_running=completion.still_running,
        )
        if crashes.dead_lettered:
            won = self.won[row.job_id.int]
            won.status = JobStatus.FAILED
            self.crashes += crashes.notes

    # --- what follows ---------------------------------------------------------------------------

    def _save_states(self, won: Sequence[Won]) -> None:
        states = [
            (one.completion.claim.job_id, one.completion.state)
            for one in won
            if one.completion.state is not None
        ]
        if states:
            self.session.execute(SAVE_STATES, {"run": states})

    def _update_dependants(self, won: Sequence[Won]) -> EffectsByJob | None:
        """What the ends meant for batches and dependants; None where there are none, as for most jobs."""
        concerned = [one for one in won if one.batch_id is not None or one.has_dependants]
        if not concerned:
            return None
        deltas = BatchDeltas()
        ended: list[EndedJob] = []
        for one in concerned:
            completion = one.completion
            if one.batch_id is not None and isinstance(completion.decision, Succeed | Retry | Fail):
                deltas.count_run(one.batch_id, completion.started_at, completion.finished_at or self.now)
            if one.status.is_terminal:
                ended.append(
                    EndedJob(
                        job_id=completion.claim.job_id,
                        status=one.status,
                        has_dependants=one.has_dependants,
                        batch_id=one.batch_id,
                        verdicts=completion.verdicts,
                    )
                )
        # where several finish a batch together, the answer of the last one by id names it
        ended.sort(key=lambda one: one.job_id.int)
        return settle_edges(self.session, ended, now=self.now, deltas=deltas)

    def _record_alerts(self, won: Sequence[Won], window: timedelta) -> None:
        failures = self.crashes
        for one in won:
            decision = one.completion.decision
            if isinstance(decision, Fail):
                job_id, error = one.completion.claim.job_id, decision.error.summary
                failures.append(FailureNote(job_id, one.target, decision.error_hash, error, decision.reason))
        if failures:
            for job_id in write_alerts(self.session, failures, self.now, window=window):
                self.won[job_id.int].alerted = True

    def _insert_callbacks(self, won: Sequence[Won], effects: EffectsByJob | None) -> None:
        callbacks = [one.completion.callback for one in won if one.completion.callback is not None]
        if callbacks:
            insert_specs(self.session, self.streams, callbacks, now=self.now)
        # failures that no worker could foresee: a condition raised, or a crash was one too many
        unseen = [job.job_id for job in effects.canceled if job.status is JobStatus.FAILED] if effects else []
        for one in won:
            if one.has_crashed and one.status is JobStatus.FAILED and one.completion.callback is None:
                unseen.append(one.completion.claim.job_id)
        if unseen:
            insert_failure_callbacks(self.session, self.streams, unseen, now=self.now)

    def _free_keys(self, won: Sequence[Won]) -> None:
        concerned = [one for one in won if one.business_key is not None or one.completion.still_running]
        if not concerned:
            return
        freed: list[UUID] = []
        kept: list[Run] = []
        remembered: list[Run] = []
        for one in concerned:
            claim = one.completion.claim
            run = (claim.job_id, claim.claim_id, claim.node_id)
            if not one.status.is_terminal or one.business_key is None:
                if one.completion.still_running and one.status is not JobStatus.SUCCEEDED:
                    remembered.append(run)
            elif not one.has_crashed:
                if one.completion.still_running:
                    kept.append(run)
                else:
                    freed.append(claim.job_id)
        remember_runs(self.session, remembered, self.now)
        keep_keys(self.session, kept)
        free_keys(self.session, freed)

    def _free_permits(self, won: Sequence[Won]) -> None:
        claims = [
            one.completion.claim for one in won if not one.completion.still_running and not one.has_crashed
        ]
        gated = {
            stream_id
            for stream_id in {claim.stream_id for claim in claims}
            if self.streams.needs_permit(stream_id, self.session)
        }
        if gated:
            held = [(claim.job_id, claim.claim_id) for claim in claims if claim.stream_id in gated]
            free_permits(self.session, held)

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
        found = _Completions(session, streams, completions, now).run(alert_window)
        return [found[number] for number in numbers]
    # A statement names a job once. A second completion of the same job is written after the first, and finds what
    # that one did.
    answers: dict[int, CompletionAnswer] = {}
    waiting = list(enumerate(completions))
    while waiting:
        first: dict[int, tuple[int, Completion]] = {}
        later: list[tuple[int, Completion]] = []
        for position, one in waiting:
            if first.setdefault(one.claim.job_id.int, (position, one))[0] != position:
                later.append((position, one))
        found = _Completions(session, streams, [one for _, one in first.values()], now).run(alert_window)
        answers.update((position, found[number]) for number, (position, _) in first.items())
        waiting = later
    return [answers[position] for position in range(len(completions))]


def write_successes(session: Session, completions: Sequence[Completion], now: datetime) -> dict[int, Facts]:
    """
    End the jobs of these runs as SUCCEEDED, where the claim still holds the job; the facts of each job that was ended.

    The completions are of different jobs. What follows from the facts is up to the caller. The keys are the numbers of
    the ids: Python hashes a UUID ten times slower.
    """
    return session.dialect.write_successes(session, completions, now)


def succeed_in_steps(session: Session, completions: Sequence[Completion], now: datetime) -> dict[int, Facts]:
    """`write_successes` on any product."""
    ids = [one.claim.job_id for one in completions]
    pairs = [(one.claim.job_id, one.claim.claim_id) for one in completions]
    gone = {job_id.int for (job_id,) in session.rows(LEAVE_HELD_ROWS, {"ids": ids, "run": pairs})}
    runs = [success_row(one, now) for one in completions if one.claim.job_id.int in gone]
    # The claim, second in a success row, is no column of the job; what is the same for all comes last.
    ended = [(run[0], *run[2:], "SUCCEEDED", None, None, None) for run in runs]
    session.update_rows("scheduler_job", SUCCESS_COLUMNS, ended)
    session.insert_rows("scheduler_job_execution", SUCCESS_RUN_COLUMNS, [success_run(run) for run in runs])
    facts = dict.fromkeys(gone, PLAIN)
    for job_id, *rest in session.rows(FIND_NOT_PLAIN, {"ids": [run[0] for run in runs]}) if runs else ():
        facts[job_id.int] = (rest[0], rest[1], rest[2])
    return facts


def succeed_at_once(session: Session, completions: Sequence[Completion], now: datetime) -> dict[int, Facts]:
    """`write_successes` in one statement, where one may change several tables."""
    ids = [one.claim.job_id for one in completions]
    runs = [success_row(one, now) for one in completions]
    facts = dict.fromkeys([job_id.int for job_id in ids], PLAIN)
    for job_id, is_won, *rest in session.rows(SUCCEED, {"ids": ids, "run": runs}):
        if is_won:
            facts[job_id.int] = (rest[0], rest[1], rest[2])
        else:
            del facts[job_id.int]
    return facts


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


# --- rows ---------------------------------------------------------------------------------------


def status_after(decision: Decision) -> JobStatus:
    """The state that a decision leads to (for a crash that uses up the budget: see `count_crashes`)."""
    if isinstance(decision, Succeed):
        return JobStatus.SUCCEEDED
    return JobStatus.FAILED if isinstance(decision, Fail) else JobStatus.PENDING


def success_row(one: Completion, now: datetime) -> tuple[object, ...]:
    """
    What a success writes: job, claim, attempt, crashes, due time, start, end, node, result, truncated.

    All from the claim: while it holds the job, nobody changes the queue row.
    """
    claim, decision = one.claim, one.decision
    assert isinstance(decision, Succeed)
    return (
        claim.job_id,
        claim.claim_id,
        claim.attempts + 1,
        claim.crashes,
        claim.scheduled_at,
        one.started_at,
        one.finished_at or now,
        claim.node_id,
        decision.result,
        decision.truncated,
    )


def success_run(row: tuple[object, ...]) -> tuple[object, ...]:
    """The run's own row from a `success_row`; columns as in `SUCCESS_RUN_COLUMNS`."""
    job_id, claim_id, attempt, _, scheduled_at, started_at, finished_at, node_id, _, _ = row
    status = (ExecutionStatus.SUCCEEDED, True)
    return (job_id, claim_id, attempt, node_id, scheduled_at, started_at, finished_at, *status)


def ended_row(one: Completion, row: QueueRow, now: datetime) -> tuple[object, ...]:
    """What a success or a final failure writes into the job's row; columns as in `END_RUNS`."""
    decision = one.decision
    assert isinstance(decision, Succeed | Fail)
    status = status_after(decision).value
    times = (row.scheduled_at, one.started_at, one.finished_at or now)
    known = (row.job_id, status, row.attempts + 1, row.crashes, *times, one.claim.node_id)
    if isinstance(decision, Succeed):
        return (*known, decision.result, decision.truncated, None, None, None, None)
    return (*known, None, False, decision.error.summary, decision.error.type, decision.reason, now)


def requeued(one: Completion, row: QueueRow, due_at: datetime, now: datetime) -> QueueRow:
    """The queue row of a job that goes back: due at *due_at*, or held back while the code of this run is still running."""
    attempts = row.attempts + isinstance(one.decision, Retry)
    back = replace(row, attempts=attempts, scheduled_at=due_at, held_claim_id=None)
    return held_back(back, now) if one.still_running else back


def resting_row(one: Completion, row: QueueRow, due_at: datetime) -> tuple[object, ...]:
    """What the job's row keeps of a job that goes back: its own due time, and for a retry the error."""
    known = (row.job_id, JobStatus.PENDING.value, row.attempts, row.crashes, due_at, one.started_at, None)
    if isinstance(one.decision, Retry):
        error = one.decision.error
        return (*known, one.claim.node_id, None, False, error.summary, error.type, None, None)
    return (*known, None, None, False, None, None, None, None)


def execution_row(one: Completion, row: QueueRow, now: datetime) -> tuple[object, ...]:
    """The run's own row; columns as in `failures.EXECUTION_COLUMNS`."""
    status, counted, error = run_outcome(one.decision)
    failure = (None, None, None) if error is None else (error.summary, error.type, error.traceback)
    run = (row.job_id, one.claim.claim_id, row.attempts + 1, one.claim.node_id)
    times = (row.scheduled_at, one.started_at, one.finished_at or now)
    return (*run, *times, status, counted, *failure)
