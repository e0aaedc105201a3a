"""
Submissions that a tracer follows: each job is stored with the trace in which it was submitted.

Nothing of this runs for a scheduler without a tracer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from ratchet.api.submit.steps import Submission
from ratchet.model.job import JobSpec
from ratchet.model.traces import Trace, with_trace
from ratchet.spi.tracer import Submitted, Tracer


class Carried:
    """The trace that the jobs of one submission carry."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._params: dict[str | None, str] = {}  # jobs of a bulk have the same ones

    def job(self, spec: JobSpec) -> JobSpec:
        """*spec* with the trace among its params."""
        if not self._trace.carrier:
            return spec
        params = self._params.get(spec.params)
        if params is None:
            params = self._params[spec.params] = with_trace(spec.params, self._trace)
        return replace(spec, params=params)

    def jobs(self, specs: Iterable[JobSpec]) -> list[JobSpec]:
        """All of them."""
        return [self.job(spec) for spec in specs]

    def whole(self, submission: Submission) -> None:
        """Put the trace into everything that *submission* stores."""
        submission.specs = self.jobs(submission.specs)
        if submission.batch is not None:
            submission.batch = replace(submission.batch, parent=self.job(submission.batch.parent))


@contextmanager
def producing(tracer: Tracer, submitted: Submitted, *, linked: bool) -> Iterator[Carried]:
    """Surrounds the submission of jobs, whose runs are *linked* to its trace or else part of it."""
    with tracer.submitting(submitted) as carrier:
        yield Carried(Trace(dict(carrier), linked=linked))


@contextmanager
def producing_many(
    tracer: Tracer, first: JobSpec, count: int | None, *, batch_id: UUID | None = None
) -> Iterator[Carried]:
    """One span for a bulk: its runs are linked to it, because a trace of thousands of jobs helps nobody."""
    submitted = Submitted(
        target=first.target, queue=first.stream.queue, count=count, bulk=True, batch_id=batch_id
    )
    with producing(tracer, submitted, linked=True) as carried:
        yield carried


@contextmanager
def producing_graph(tracer: Tracer, submission: Submission, now: datetime) -> Iterator[None]:
    """Surrounds the sending of one job, or of a graph, whose jobs get the trace."""
    specs = submission.specs
    first = next((spec for spec in specs if spec.parent_id is None), specs[0])
    submitted = Submitted(
        target=first.target, queue=first.stream.queue, job_id=first.job_id, count=len(specs)
    )
    with producing(tracer, submitted, linked=any(_waits(spec, now) for spec in specs)) as carried:
        carried.whole(submission)
        yield


@contextmanager
def producing_job(
    tracer: Tracer, spec: JobSpec, now: datetime, *, schedule: str | None = None
) -> Iterator[JobSpec]:
    """Surrounds the storing of *spec*, or of the schedule whose runs are made from it; gives the job with its trace."""
    submitted = Submitted(
        target=spec.target,
        queue=spec.stream.queue,
        job_id=spec.job_id if spec.job_id.int else None,
        count=1,
        schedule=schedule,
    )
    with producing(tracer, submitted, linked=schedule is not None or _waits(spec, now)) as carried:
        yield carried.job(spec)


def _waits(spec: JobSpec, now: datetime) -> bool:
    """True if the job, and so what follows it, begins some time after this submission."""
    return spec.scheduled_at > now or spec.signal is not None
