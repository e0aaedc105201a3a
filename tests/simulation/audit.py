"""What must have come of random graphs and batches, whoever crashed when."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from ratchet.model.status import JobStatus
from tests.simulation.evaluation import BatchPlan, Evaluation, Step, follows
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.graphs import GraphWorld


class Audit:
    """Compares a world of graphs that has come to rest with what must have come of it."""

    def __init__(self, world: GraphWorld) -> None:
        self._world = world

    def status(self, job_id: UUID) -> JobStatus:
        """The state of a job that must be there."""
        record = self._world.store.get(job_id)
        if record is None:
            raise Violation(self._world.seed, f"acknowledged job {job_id} is lost")
        return record.status

    def check_graphs(self, expected: list[Evaluation]) -> None:
        """Every job of every graph has come to the end that was foretold."""
        for plan, evaluation in zip(self._world.graphs, expected, strict=True):
            for job_id, state in evaluation.states.items():
                if self.status(job_id) is not state:
                    raise Violation(
                        self._world.seed,
                        f"job {job_id} is {self.status(job_id)}, and should be {state} in {plan}",
                    )
                self._check_count(plan.steps[job_id], ran=state is not JobStatus.CANCELED)

    def _check_count(self, step: Step, *, ran: bool) -> None:
        """A job that ran to its end has exactly the runs that its behavior says: no step counts twice."""
        record = self._world.store.get(step.job_id)
        runs = self._world.store.executions(step.job_id)
        if sum(run.status == "SUCCEEDED" for run in runs) > 1:
            raise Violation(self._world.seed, f"job {step.job_id} succeeded twice")
        if record is None or not ran or not record.attempts or self._world.retries[step.job_id]:
            return
        wanted = step.fails + 1 if step.succeeds else step.max_retries + 1
        if not len(runs) == record.attempts == wanted:
            raise Violation(self._world.seed, f"job {step.job_id} has {len(runs)} counted runs, not {wanted}")

    def check_batches(self) -> None:
        """Every batch has counted what ended, and its followers ran by what it counted."""
        for batch in self._world.batches:
            self._check_batch(batch)

    def _check_batch(self, batch: BatchPlan) -> None:
        record = self._world.store.batch(batch.batch_id)
        if record is None:
            raise Violation(self._world.seed, f"batch {batch.batch_id} is lost")
        ends = Counter(self.status(step.job_id) for step in batch.items)
        counters = (record.completed, record.failed, record.canceled, record.total)
        counted = (*(ends[s] for s in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED)),)
        if counters != (*counted, len(batch.items)) or not record.sealed or record.finished_at is None:
            raise Violation(self._world.seed, f"batch {record} should count {counted} of {len(batch.items)}")
        if batch.canceled:
            states = {self.status(job_id) for job_id in (batch.batch_id, *batch.followers)}
            if states != {JobStatus.CANCELED}:
                raise Violation(
                    self._world.seed, f"batch {batch.batch_id} was given up, and its jobs are {states}"
                )
            return
        self._check_completion(batch, ends)

    def _check_completion(self, batch: BatchPlan, ends: Counter[JobStatus]) -> None:
        for step in batch.items:
            ended = self.status(step.job_id)
            self._check_count(step, ran=ended is not JobStatus.CANCELED)
            if ended is JobStatus.CANCELED and step.job_id not in self._world.hand_canceled:
                raise Violation(
                    self._world.seed, f"item {step.job_id} of batch {batch.batch_id} was canceled"
                )
        completions = [
            run for run in self._world.store.executions(batch.batch_id) if run.status == "SUCCEEDED"
        ]
        if len(completions) != 1 + batch.reopened:
            raise Violation(
                self._world.seed,
                f"batch {batch.batch_id} completed {len(completions)} times, opened {batch.reopened} times",
            )
        for job_id, test in batch.followers.items():
            now = self._follows(test, batch, ends)
            # A follower of the first completion has run, whatever the second one says.
            before = batch.reopened and self._follows(test, batch, self._ends_before(batch))
            state = JobStatus.SUCCEEDED if now or before else JobStatus.CANCELED
            if self.status(job_id) is not state:
                raise Violation(
                    self._world.seed,
                    f"follower {test} of {batch.batch_id} is {self.status(job_id)}, not {state}",
                )
            self._check_count(Step(job_id), ran=state is JobStatus.SUCCEEDED)

    @staticmethod
    def _follows(test: str, batch: BatchPlan, ends: Counter[JobStatus]) -> bool:
        return follows(test, len(batch.items), ends[JobStatus.SUCCEEDED], ends[JobStatus.FAILED])

    def _ends_before(self, batch: BatchPlan) -> Counter[JobStatus]:
        """How the items had ended before the failed ones were mended."""
        return Counter(
            JobStatus.CANCELED
            if step.job_id in self._world.hand_canceled
            else JobStatus.SUCCEEDED
            if step.succeeds
            else JobStatus.FAILED
            for step in batch.items
        )
