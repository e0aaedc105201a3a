"""`Condition`: when a branch of a workflow is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ratchet.api.backend import Backend
from ratchet.api.submit.calls import Call, stored_callback
from ratchet.model.composition import Condition as StoredCondition
from ratchet.model.composition import EdgeKind
from ratchet.model.results import BatchContext, JobResult


@dataclass(frozen=True, slots=True)
class Condition:
    """
    When a branch is taken; made by the class methods below.

    Predicates are importable functions under the target policy. They run on the worker before the
    parent's completion is written; one that raises fails its branch, not the parent. ``call(is_above, 7)``
    asks ``is_above(result, 7)``.
    """

    edge: EdgeKind
    kind: str | None = None
    predicate: Callable[..., Any] | None = None
    argument: str | None = None

    @classmethod
    def success(cls) -> Condition:
        """Taken when the job succeeded."""
        return cls(EdgeKind.SUCCESS)

    @classmethod
    def failure(cls) -> Condition:
        """Taken when the job failed for good."""
        return cls(EdgeKind.FAILURE)

    @classmethod
    def custom(cls, predicate: Callable[[JobResult], Any] | Call[Any]) -> Condition:
        """Taken when ``predicate(job_result)`` is true, however the job ended."""
        return cls(EdgeKind.CONDITION, "job_result", predicate)

    @classmethod
    def result(cls, predicate: Callable[[Any], Any] | Call[Any]) -> Condition:
        """Taken when the job succeeded and ``predicate(result)`` is true."""
        return cls(EdgeKind.CONDITION, "result", predicate)

    @classmethod
    def batch_success(cls) -> Condition:
        """Taken when every item of the batch succeeded."""
        return cls(EdgeKind.CONDITION, "batch_success")

    @classmethod
    def batch_failure(cls) -> Condition:
        """Taken when some item of the batch did not succeed."""
        return cls(EdgeKind.CONDITION, "batch_failure")

    @classmethod
    def success_rate(cls, at_least: float) -> Condition:
        """Taken when at least this share (0 to 1) of the batch's items succeeded."""
        return cls(EdgeKind.CONDITION, "success_rate", argument=repr(float(at_least)))

    @classmethod
    def failure_count(cls, at_least: int) -> Condition:
        """Taken when at least so many items of the batch failed."""
        return cls(EdgeKind.CONDITION, "failure_count", argument=str(int(at_least)))

    @classmethod
    def batch(cls, predicate: Callable[[BatchContext], Any] | Call[Any]) -> Condition:
        """Taken when ``predicate(batch_context)`` is true."""
        return cls(EdgeKind.CONDITION, "batch_predicate", predicate)

    def stored(self, backend: Backend, *, order: int, description: str | None) -> StoredCondition | None:
        """The condition as an edge keeps it; None where the edge's kind says it all."""
        if self.kind is None:
            return None
        name, argument = None, self.argument
        if self.predicate is not None:
            name, argument = stored_callback(backend, self.predicate, 1)
        return StoredCondition(
            kind=self.kind, predicate=name, argument=argument, order=order, description=description
        )
