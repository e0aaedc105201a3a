"""What must hold when a soak is over, whatever was done to it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from ratchet import BusinessKeyBusy, Job, JobNotFound, JobStatus, Scheduler
from tests.chaos.soak import jobs
from tests.chaos.soak.blows import Blows
from tests.chaos.soak.log import Run
from tests.chaos.soak.operations import KEYS, RESOURCES, Records
from tests.support.waiting import happens

ENDED = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED)
#: A job that was canceled before its start starts no later than this after the answer (docs/how-to/stopping.md).
CANCEL_WINDOW = 5.0
#: A retry after a timeout whose code has ended waits for nothing; with 60 s it would wait for the limit instead.
RETRY_WITHIN = 40.0
MAX_CRASHES = 3
#: Code that ignores its timeout keeps key and permit until it ends. The longest in a soak takes 3 s.
CODE_ENDS_WITHIN = 15.0


class Judge:
    """Holds the log of the runs and the answers of the store against what was acknowledged."""

    def __init__(
        self, scheduler: Scheduler, records: Records, blows: Blows, runs: Sequence[Run], booked: Counter[int]
    ) -> None:
        self._scheduler = scheduler
        self._records = records
        self._blows = blows
        self._booked = booked
        self._runs: dict[UUID, list[Run]] = defaultdict(list)
        self._marks: dict[str, list[Run]] = defaultdict(list)
        for run in runs:
            self._runs[run.job_id].append(run)
            self._marks[run.mark].append(run)
        self._jobs: dict[UUID, Job] = {}

    def broken(self) -> list[str]:
        """Every violation, in words."""
        found = list(self._existence())
        for rule in (
            self._payments, self._overlaps, self._keys, self._limits, self._cancellations, self._expiry, self._failures,
            self._retries, self._chains, self._joins, self._batches, self._left_over,
        ):  # fmt: skip
            found += rule()
        return found

    def _existence(self) -> Iterator[str]:
        for job_id, promise in self._records.jobs.items():
            try:
                job = self._scheduler.jobs.get(job_id)
            except JobNotFound:
                if not promise.deleted:
                    yield f"{promise.kind} job {job_id} is gone"
                continue
            self._jobs[job_id] = job
            if job.status not in ENDED:
                reasons = [reason.code for reason in self._scheduler.explain(job_id)]
                yield f"{promise.kind} job {job_id} is still {job.status}: {reasons}"
            commits = (
                promise.number is not None
            )  # it commits its own success, and may be killed before its last line
            ran = any(run.succeeded or (commits and run.ended_at is None) for run in self._runs[job_id])
            if job.status is JobStatus.SUCCEEDED and not ran:
                yield f"{promise.kind} job {job_id} SUCCEEDED without a run that came to its end"
        for job_id in self._records.rolled_back:
            try:
                self._scheduler.jobs.get(job_id)
            except JobNotFound:
                continue
            yield f"job {job_id} is stored although its transaction was rolled back"

    def _payments(self) -> Iterator[str]:
        for job_id, promise in self._records.jobs.items():
            if promise.number is None or job_id not in self._jobs:
                continue
            status = self._jobs[job_id].status
            times = self._booked[promise.number]
            if times != (status is JobStatus.SUCCEEDED):
                yield f"payment {promise.number} is {status} and booked {times} times"

    def _overlaps(self) -> Iterator[str]:
        for job_id, runs in self._runs.items():
            if job_id in self._records.jobs:
                yield from self._one_after_the_other(runs, f"job {job_id}")

    def _keys(self) -> Iterator[str]:
        for number in range(KEYS):
            yield from self._one_after_the_other(self._marks[f"key-{number}"], f"business key key-{number}")

    def _one_after_the_other(self, runs: Sequence[Run], what: str) -> Iterator[str]:
        for index, run in enumerate(runs):
            if self._is_excused(run):
                continue
            assert run.ended_at is not None
            for later in runs[index + 1 :]:
                if later.started_at < run.ended_at:
                    overlap = run.ended_at - later.started_at
                    yield (
                        f"{what}: run of {later.job_id} (attempt {later.attempt}) began {overlap:.2f} s before the "
                        f"run of {run.job_id} (attempt {run.attempt}, {run.raised}) ended"
                    )

    def _limits(self) -> Iterator[str]:
        for name, most in RESOURCES.items():
            changes: list[tuple[float, int]] = []
            for run in self._marks[name]:
                if not self._is_excused(run):
                    assert run.ended_at is not None
                    changes += [(run.started_at, 1), (run.ended_at, -1)]
            running = 0
            for _, change in sorted(changes):
                running += change
                if running > most:
                    yield f"limit {name}: {running} ran at once, {most} are allowed"
                    break

    def _is_excused(self, run: Run) -> bool:
        """Nobody can hold back code of a process that stood still, or see its end in one that was killed."""
        if run.ended_at is None:
            return True
        return any(freeze.touches(run, run.started_at, run.ended_at) for freeze in self._blows.freezes)

    def _cancellations(self) -> Iterator[str]:
        for job_id, promise in self._records.jobs.items():
            if promise.canceled_at is None:
                continue
            for run in self._runs[job_id]:
                late = run.started_at - promise.canceled_at
                stood_still = any(
                    freeze.touches(run, promise.canceled_at, run.started_at) for freeze in self._blows.freezes
                )
                if late > CANCEL_WINDOW and not stood_still:
                    yield f"{promise.kind} job {job_id} started {late:.1f} s after it was canceled"

    def _expiry(self) -> Iterator[str]:
        for job_id, job in self._jobs.items():
            expired = job.status is JobStatus.CANCELED and "expired" in (job.canceled_reason or "")
            # A job that was claimed ahead and starts is not written down at once. If the whole worker dies, nobody knows of it.
            known = [
                run for run in self._runs[job_id] if not any(kill.hides(run) for kill in self._blows.kills)
            ]
            if expired and known:
                yield f"job {job_id} expired although it had started ({len(known)} runs)"

    def _failures(self) -> Iterator[str]:
        for job_id, job in self._jobs.items():
            if job.status is not JobStatus.FAILED or self._records.jobs[job_id].may_fail:
                continue
            unended = sum(run.ended_at is None for run in self._runs[job_id])
            if job.crashes < MAX_CRASHES or unended < MAX_CRASHES:
                kind = self._records.jobs[job_id].kind
                yield (
                    f"{kind} job {job_id} is a dead letter without a cause: {job.error_type} {job.error} "
                    f"(crashes {job.crashes}, runs without an end {unended})"
                )

    def _retries(self) -> Iterator[str]:
        for job_id, promise in self._records.jobs.items():
            if promise.kind != "timeout" or promise.touched:
                continue
            runs = self._runs[job_id]
            for before, after in itertools.pairwise(runs):
                if self._is_excused(before) or self._was_away(before, after):
                    continue
                assert before.ended_at is not None
                if after.started_at - before.ended_at > RETRY_WITHIN:
                    waited = after.started_at - before.ended_at
                    yield f"the retry of {job_id} began {waited:.0f} s after the code of the run before had ended"

    def _was_away(self, before: Run, after: Run) -> bool:
        return any(
            begun < after.started_at and ended > before.started_at for begun, ended in self._blows.outages
        )

    def _chains(self) -> Iterator[str]:
        for ids in self._records.chains:
            yield from self._in_order(ids[0], ids[1])
            yield from self._in_order(ids[1], ids[2])

    def _in_order(self, parent: UUID, child: UUID) -> Iterator[str]:
        if not self._runs[child]:
            return
        ends = [run.ended_at for run in self._runs[parent] if run.succeeded and run.ended_at is not None]
        if not ends or self._runs[child][0].started_at < min(ends):
            yield f"job {child} started before {parent}, which it follows, had succeeded"

    def _joins(self) -> Iterator[str]:
        for joined, parents in self._records.joins:
            # the deletion of a parent cancels what waits for it, whatever the others do
            statuses = {self._jobs[parent].status if parent in self._jobs else None for parent in parents}
            for parent in parents:
                yield from self._in_order(parent, joined)
            status = self._jobs[joined].status
            if statuses == {JobStatus.SUCCEEDED} and status is not JobStatus.SUCCEEDED:
                yield f"all parents of join {joined} have succeeded, and it is {status}"

    def _batches(self) -> Iterator[str]:
        for batch, _ in self._records.batches:
            context = batch.context()
            if not context.is_complete or context.completed_items != context.total_items:
                yield f"{batch.name} was retried until all could succeed, and is {context}"
            elif not any(run.succeeded for run in self._marks[f"{batch.name}-success"]):
                yield f"all items of {batch.name} have succeeded, and what follows never ran"

    def _left_over(self) -> Iterator[str]:
        for name in RESOURCES:
            if not happens(lambda name=name: not self._scheduler.limits.holders(name), CODE_ENDS_WITHIN):  # type: ignore[misc]
                yield f"permits of {name} are held by nobody who runs: {self._scheduler.limits.holders(name)}"
        for number in range(KEYS):
            if not happens(lambda number=number: self._is_free(f"key-{number}"), CODE_ENDS_WITHIN):  # type: ignore[misc]
                yield f"key-{number} is still held"

    def _is_free(self, key: str) -> bool:
        """Whether a job can have *key* now."""
        try:
            self._scheduler.enqueue(jobs.work, "/dev/null").with_business_key(key).submit().cancel()
        except BusinessKeyBusy:
            return False
        return True


def summary(records: Records, blows: Blows, runs: Sequence[Any]) -> str:
    """One line about how much was done."""
    operations = sum(records.done.values())
    refused = sum(records.refused.values())
    dealt = ", ".join(f"{name} {count}" for name, count in sorted(blows.dealt.items()))
    return (
        f"{operations} operations, {refused} refused, {len(runs)} runs of {len(records.jobs)} jobs; {dealt}"
    )
