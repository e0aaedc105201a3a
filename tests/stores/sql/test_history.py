"""Executions, logs and the archive in SQL: what the conformance kit does not reach."""

from __future__ import annotations

from uuid import UUID

from ratchet.model.claim import JobClaim
from ratchet.model.job import JobFilter, LogEntry
from ratchet.model.status import JobStatus
from ratchet.stores.bounded_scan import STEP
from ratchet.stores.sql.history import JOB_COLUMNS
from tests.stores.sql_stores import SqlSteps, at_once


def archive(steps: SqlSteps, limit: int = 1000) -> int:
    """Archive what ended more than a week ago."""
    return steps.store.archive(before=steps.after(days=-7), limit=limit, now=steps.now)


def archived(steps: SqlSteps) -> set[UUID]:
    """What is in the archive."""
    return {job_id for (job_id,) in steps.sql("SELECT job_id FROM scheduler_job_archive")}


def entry(claim: JobClaim, sequence: int, message: str, **changes: str) -> LogEntry:
    """One line of a run."""
    values = {"level": "INFO", "logger": "shop.jobs", **changes}
    return LogEntry(
        job_id=claim.job_id,
        claim_id=claim.claim_id,
        sequence=sequence,
        attempt=1,
        at=claim.claimed_at,
        message=message,
        **values,
    )


class TestArchive:
    def test_every_column_is_copied(self, steps: SqlSteps) -> None:
        """The list of columns is the table's, in both tables: a migration that forgets it loses data."""
        names = {name.strip() for name in JOB_COLUMNS.split(",")}
        listing = {
            "sqlite": "SELECT name FROM pragma_table_info('{}')",
            "postgresql": "SELECT column_name FROM information_schema.columns WHERE table_name = '{}'",
            "mysql": """SELECT column_name FROM information_schema.columns
                         WHERE table_schema = DATABASE() AND table_name = '{}'""",
        }[steps.store.name]
        cold, cool = (
            {row[0] for row in steps.sql(listing.format(table))}
            for table in ("scheduler_job", "scheduler_job_archive")
        )
        assert cold == names
        assert cool == names | {"archived_at"}

    def test_more_than_one_stretch_of_rows_that_stay(self, steps: SqlSteps) -> None:
        """Dead letters at the old end do not hide what lies behind them, nor does the second call start over."""
        steps.submit_many(STEP + 20)
        steps.end_all(steps.claim(), steps.failure())
        steps.submit_many(30)
        steps.end_all(steps.claim())
        steps.advance(days=8)
        steps.submit_many(10)
        steps.end_all(steps.claim())
        assert [archive(steps, 20), archive(steps, 20), archive(steps, 20)] == [20, 10, 0]
        assert steps.store.counts()[JobStatus.FAILED] == STEP + 20
        assert steps.store.counts()[JobStatus.SUCCEEDED] == 10

    def test_an_older_job_that_ended_later(self, steps: SqlSteps) -> None:
        """A job that was passed over because it lived is found when it has ended long enough ago."""
        late = steps.submit(scheduled_at=steps.after(days=30))
        early = [steps.succeeded() for _ in range(3)]
        steps.advance(days=8)
        assert archive(steps, 2) == 2
        steps.store.cancel(late, reason="r", now=steps.now)
        steps.advance(days=8)
        assert archive(steps) == 2
        assert archived(steps) == {late, *early}

    def test_what_a_retry_would_revive_stays(self, steps: SqlSteps) -> None:
        """A step that a dead letter canceled waits beside it; after that is archived, it goes too."""
        parent, step = steps.spec(), steps.child()
        steps.insert([parent, step], [steps.edge(parent, step)])
        steps.end(steps.claim_job(parent.job_id), steps.failure())
        assert steps.status(step.job_id) is JobStatus.CANCELED
        steps.advance(days=8)
        assert archive(steps) == 0
        assert steps.store.retry(parent.job_id, now=steps.now)
        assert steps.status(step.job_id) is JobStatus.WAITING
        steps.end(steps.claim_job(parent.job_id), steps.failure())
        steps.advance(days=8)
        assert steps.store.purge_dead_letters(before=steps.now, limit=9) == 1
        assert archive(steps) == 1
        assert archived(steps) == {parent.job_id, step.job_id}

    def test_two_nodes_share_the_work(self, steps: SqlSteps) -> None:
        """Each job is moved once, whoever asks, and nobody waits for the other."""
        steps.submit_many(300)
        steps.end_all(steps.claim())
        steps.advance(days=8)
        other = steps.another()

        def by(handle: object) -> int:
            before = steps.after(days=-7)
            return sum(handle.archive(before=before, limit=25, now=steps.now) for _ in range(14))  # type: ignore[attr-defined]

        moved = at_once(lambda: by(steps.store), lambda: by(other))
        assert sum(moved) + archive(steps) == 300
        assert len(archived(steps)) == 300
        assert steps.store.count(JobFilter(include_archived=True)) == 300

    def test_a_dependant_that_is_being_submitted(self, postgresql: SqlSteps) -> None:
        """A job whose new dependant is not committed yet is passed over, and stays when it is."""
        steps = postgresql
        parent, child = steps.succeeded(), steps.child(scheduled_at=steps.after(days=99))
        steps.advance(days=8)
        with steps.store.begin() as connection:
            steps.store.insert([child], edges=[steps.edge(parent, child)], now=steps.now, within=connection)
            assert steps.another().archive(before=steps.now, limit=9, now=steps.now) == 0
        assert archive(steps) == 0
        assert steps.status(child.job_id) is JobStatus.PENDING

    def test_purging_takes_edges_logs_and_batches_along(self, steps: SqlSteps) -> None:
        """Nothing of a purged graph is left anywhere."""
        parent, step = steps.spec(), steps.child()
        steps.insert([parent, step], [steps.edge(parent, step)])
        batch, _ = steps.batch_of(2)
        while claims := steps.claim():
            steps.store.append_logs([entry(claim, 1, "line") for claim in claims], now=steps.now)
            steps.end_all(claims)
        assert steps.status(batch.parent.job_id) is JobStatus.SUCCEEDED
        steps.advance(days=8)
        assert archive(steps) == 5
        steps.advance(days=8)
        assert [steps.store.purge_archive(before=steps.now, limit=3) for _ in range(3)] == [3, 2, 0]
        for table in (
            "job_archive",
            "job_execution",
            "job_log",
            "dependency",
            "batch",
            "batch_metrics",
            "job_tag",
        ):
            assert steps.sql(f"SELECT count(*) AS left_over FROM scheduler_{table}") == [(0,)], table


class TestLogs:
    def test_what_a_column_cannot_hold(self, steps: SqlSteps) -> None:
        """A NUL, half a surrogate pair, an endless logger name: the line is stored readable, and so are its neighbours."""
        claim = steps.running()
        lines = [
            entry(claim, 1, "before"),
            entry(claim, 2, "zero \0 half \ud83d", logger="l" * 400, level="CUSTOM LEVEL OF A LIBRARY"),
            entry(claim, 3, "after"),
        ]
        steps.store.append_logs(lines, now=steps.now)
        stored = steps.store.logs(claim.job_id)
        assert [line.message for line in stored] == ["before", "zero \\u0000 half \\ud83d", "after"]
        assert (stored[1].logger, stored[1].level) == ("l" * 255, "CUSTOM LEVEL OF ")

    def test_lines_of_a_purged_history_are_not_called_lost(self, steps: SqlSteps) -> None:
        """Whether a run held its job cannot be known any more, so nothing is said."""
        claim = steps.running()
        steps.store.append_logs([entry(claim, 1, "line")], now=steps.now)
        steps.end(claim)
        steps.advance(days=1)
        assert steps.store.purge_executions(before=steps.now, limit=9) == 1
        assert [line.lost for line in steps.store.logs(claim.job_id)] == [False]

    def test_lines_of_a_claim_that_was_never_known(self, steps: SqlSteps) -> None:
        """The job runs under another claim: whoever wrote them had lost it."""
        claim = steps.running()
        steps.store.append_logs([entry(steps.forged_claim(claim.job_id), 1, "line")], now=steps.now)
        assert [line.lost for line in steps.store.logs(claim.job_id)] == [True]


class TestExecutions:
    def test_times_are_never_negative(self, steps: SqlSteps) -> None:
        """Started before it was due, finished before it started: two clocks, and a duration of zero."""
        claim = steps.running()
        early = steps.after(seconds=-5)
        steps.end(claim, started_at=early, finished_at=steps.after(seconds=-9))
        (run,) = steps.store.executions(claim.job_id)
        assert run.duration is not None
        assert run.queue_wait is not None
        assert (run.duration.total_seconds(), run.queue_wait.total_seconds()) == (0, 0)

    def test_purging_more_than_one_stretch(self, steps: SqlSteps) -> None:
        """Runs of live jobs at the old end do not hide old runs behind them."""
        live = [steps.running() for _ in range(3)]
        for claim in live:
            steps.end(claim, steps.another_try(steps.after(days=99)))
        steps.submit_many(STEP + 50)
        steps.end_all(steps.claim())
        steps.advance(days=1)
        assert steps.store.purge_executions(before=steps.now, limit=400) == 400
        assert steps.store.purge_executions(before=steps.now, limit=400) == STEP - 350
        assert steps.store.purge_executions(before=steps.now, limit=400) == 0
        assert steps.sql("SELECT count(*) AS left_over FROM scheduler_job_execution") == [(3,)]
