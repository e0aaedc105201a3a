"""
Branch conditions: evaluated on the worker before the completion, outside its transaction.

A condition that raises, or takes too long, fails its branch's job and not the parent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ratchet.api.observe.records import batch_context
from ratchet.model.callbacks import plain_target
from ratchet.model.composition import BatchRecord, Condition, Edge
from ratchet.model.decision import Fail, Succeed, Verdict, VerdictKind
from ratchet.model.errors import ConditionFailed, ResultTruncated
from ratchet.model.payload import decode, decode_result, truncation
from ratchet.model.results import JobResult
from ratchet.model.status import JobStatus

if TYPE_CHECKING:
    from ratchet.engine.run import Run
    from ratchet.engine.task import TaskTools


class ConditionCheck:
    """Asks the conditions on a job's outgoing edges."""

    def __init__(self, tools: TaskTools, limit: float) -> None:
        self._tools = tools
        self._limit = limit

    def verdicts(self, run: Run, decision: Succeed | Fail) -> tuple[Verdict, ...]:
        """One verdict per conditional edge, lower order first."""
        edges = self._tools.store.conditions_of(run.job_id)
        result = self._result(run, decision)
        batch = self._batch_of(edges, run)
        return tuple(self._verdict(edge, result, batch, run) for edge in edges)

    def _batch_of(self, edges: Sequence[Edge], run: Run) -> BatchRecord | None:
        """
        The counters that conditions ask about.

        Read here, where a lost connection is a failure of the store. Inside a condition it would count as the
        condition's failure.
        """
        if all(edge.condition is None or edge.condition.kind in ("result", "job_result") for edge in edges):
            return None
        # The parent job of a batch is no item of it; it has the batch's own id.
        return self._tools.store.batch(run.batch_id if run.batch_id is not None else run.job_id)

    def _result(self, run: Run, decision: Succeed | Fail) -> JobResult:
        attempts, duration = run.attempt, run.elapsed(self._tools.clock.monotonic())
        if isinstance(decision, Fail):
            return JobResult(
                job_id=run.job_id,
                status=JobStatus.FAILED,
                error=decision.error.message,
                error_type=decision.error.type,
                attempts=attempts,
                duration=duration,
            )
        if decision.truncated:
            return _TruncatedJobResult(
                job_id=run.job_id,
                status=JobStatus.SUCCEEDED,
                attempts=attempts,
                duration=duration,
                refusal=truncation(run.job_id, decision.result, self._tools.result_limit),
            )
        return JobResult(
            job_id=run.job_id,
            status=JobStatus.SUCCEEDED,
            result=decode_result(decision.result, allow_type=self._tools.allow_type),
            attempts=attempts,
            duration=duration,
        )

    def _verdict(self, edge: Edge, result: JobResult, batch: BatchRecord | None, run: Run) -> Verdict:
        condition = edge.condition
        try:
            taken = condition is not None and self._holds(condition, result, batch)
        except BaseException as error:
            text = condition.predicate or condition.kind if condition is not None else "condition"
            failure = ConditionFailed(f"the condition {text} raised {type(error).__name__}{_said(error)}")
            failure.__cause__ = error
            return Verdict(
                child_id=edge.child_id,
                kind=VerdictKind.ERROR,
                error=self._tools.decider.record(failure, run.job),
            )
        return Verdict(child_id=edge.child_id, kind=VerdictKind.TAKEN if taken else VerdictKind.NOT_TAKEN)

    def _holds(self, condition: Condition, result: JobResult, batch: BatchRecord | None) -> bool:
        match condition.kind:
            case "result":
                return result.succeeded and bool(self._ask(condition, result.result))
            case "job_result":
                return bool(self._ask(condition, result))
            case kind:
                return self._holds_for_batch(kind, condition, result, batch)

    def _holds_for_batch(
        self, kind: str, condition: Condition, result: JobResult, record: BatchRecord | None
    ) -> bool:
        if record is None:
            raise ConditionFailed(f"the condition {kind!r} needs a batch, and job {result.job_id} has none")
        context = batch_context(record)
        argument: Any = None if condition.argument is None else json.loads(condition.argument)
        match kind:
            case "batch_success":
                return context.completed_items == context.total_items
            case "batch_failure":
                return context.completed_items < context.total_items
            case "success_rate":
                return context.success_rate >= float(argument)
            case "failure_count":
                return context.failed_items >= int(argument)
            case "batch_predicate":
                return bool(self._ask(condition, context))
        raise ConditionFailed(f"unknown condition {kind!r}; a newer version of Ratchet may have stored it")

    def _ask(self, condition: Condition, value: Any) -> Any:
        if condition.predicate is None:
            raise ConditionFailed(f"the condition {condition.kind!r} has no predicate")
        name = plain_target(condition.predicate)
        invocation = self._tools.invocations.resolve(name)
        predicate = invocation.bind(self._tools.instances)
        args: tuple[Any, ...] = (value,)
        kwargs: dict[str, Any] = {}
        if name != condition.predicate and condition.argument is not None:
            given, kwargs = decode(
                condition.argument, invocation.parameters, allow_type=self._tools.allow_type
            )
            args = (value, *given[1:])
        return within_limit(lambda: predicate(*args, **kwargs), self._limit)


def _said(error: BaseException) -> str:
    """What *error* says, after a colon; nothing if it cannot say it."""
    try:
        return f": {error}"
    except BaseException:
        return ""


class _TruncatedJobResult(JobResult, frozen=True, kw_only=True):
    """A success whose result was too large to keep: a condition may ask for everything else."""

    refusal: ResultTruncated

    @property  # type: ignore[misc]  # instead of the field: a condition never sees a part of a result
    def result(self) -> Any:
        raise self.refusal


def within_limit(work: Callable[[], Any], limit: float) -> Any:
    """What *work* returns or raises; `ConditionFailed` if it has not ended after *limit* seconds."""
    answer: list[Any] = []
    failure: list[BaseException] = []

    def ask() -> None:
        try:
            answer.append(work())
        except BaseException as error:
            failure.append(error)

    # On a thread of its own, so that a predicate that hangs costs its branch and does not block the worker.
    thread = threading.Thread(target=ask, name="ratchet-condition", daemon=True)
    thread.start()
    thread.join(limit)
    if failure:
        raise failure[0]
    if not answer:
        raise ConditionFailed(f"it did not answer within {limit:g} s")
    return answer[0]
