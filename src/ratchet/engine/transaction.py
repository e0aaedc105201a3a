"""
``ctx.transaction()``: the user's writes and the job's success in one commit.

The completion statements run last, under the claim's fence: a run that lost its job commits
nothing, its writes included.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ratchet.api.context import JobTransaction, enlisted
from ratchet.engine.run import Run, Stop
from ratchet.model.callbacks import callback_for
from ratchet.model.decision import Completion, CompletionAnswer, Succeed
from ratchet.model.errors import (
    CommitUnknown,
    Conflict,
    JobInterrupted,
    RatchetError,
    StoreUnavailable,
    SubmissionBlocked,
    blame_store,
    led_to,
)
from ratchet.model.job import ExecutionStatus
from ratchet.model.payload import encode_result

if TYPE_CHECKING:
    from ratchet.engine.task import TaskTools


class RunTransaction:
    """What ``with ctx.transaction() as tx`` binds."""

    def __init__(self, connection: Any, store: object) -> None:
        self.connection = connection
        self.store = store
        self.result: Any = None

    def execute(self, statement: str, parameters: Any = ()) -> Any:
        """Run a statement on the transaction's connection and return the driver's cursor."""
        if hasattr(self.connection, "execute"):
            return self.connection.execute(statement, parameters)
        cursor = self.connection.cursor()
        cursor.execute(statement, parameters)
        return cursor


@contextmanager
def run_in_transaction(run: Run, tools: TaskTools, within: object | None) -> Iterator[JobTransaction]:
    """The block: begin, the user's statements, the completion, commit."""
    if run.committed is not None or run.connection is not None:
        raise RatchetError(
            f"job {run.job_id} already used its ctx.transaction(): there is one block per job, because "
            f"the job's success is committed with it"
        )
    run.context.check_canceled()
    made: list[tuple[Completion, CompletionAnswer]] = []
    with run.shielded():
        try:
            with tools.store.begin(within=within) as connection:
                run.connection = connection
                transaction = RunTransaction(connection, tools.store)
                with enlisted(connection, tools.store), run.exposed():
                    yield transaction
                run.context.check_canceled()
                made.append(_complete(run, tools, transaction.result, connection))
                # Before the commit: a beat may see that the claim is gone before this thread goes on, and must not take it for lost.
                run.committed = made[0]
        except BaseException as error:
            if not (made and isinstance(error, CommitUnknown) and _was_committed(run, tools)):
                run.committed = None
                _blame_store_for(error)
                raise
        finally:
            run.connection = None


def _complete(
    run: Run, tools: TaskTools, result: Any, connection: object
) -> tuple[Completion, CompletionAnswer]:
    encoded = encode_result(result, tools.result_limit)
    decision = Succeed(result=encoded.text, truncated=encoded.truncated)
    now = tools.clock.now()
    body = run.job.body
    completion = Completion(
        claim=run.job.claim,
        decision=decision,
        started_at=run.started_at,
        finished_at=now,
        verdicts=tools.conditions.verdicts(run, decision) if body.has_conditions else (),
        callback=callback_for(run.job, decision, tools.ids(), now, tools.callback_retries)
        if body.on_success is not None
        else None,
        state=run.encoded_state(),
    )
    answer = tools.store.complete([completion], now=now, within=connection)[0]
    if not answer.won:
        run.request_stop(Stop.LOST)
        raise JobInterrupted(Stop.LOST.value)
    return completion, answer


def _blame_store_for(error: BaseException) -> None:
    """The store's own errors cost no attempt (`JobTask.outcome_of_error`); the store has marked those of its driver."""
    for one in led_to(error):
        if isinstance(one, StoreUnavailable | Conflict | SubmissionBlocked):
            blame_store(one)


def _was_committed(run: Run, tools: TaskTools) -> bool:
    """
    Whether a commit whose answer was lost has happened: then the run has its own execution row.

    False also where the store cannot be asked: the run is handed back then, which the claim's fence refuses if the
    commit has happened.
    """
    try:
        executions = tools.store.executions(run.job_id)
    except (StoreUnavailable, Conflict):
        return False
    return any(
        execution.claim_id == run.job.claim.claim_id and execution.status == ExecutionStatus.SUCCEEDED
        for execution in executions
    )
