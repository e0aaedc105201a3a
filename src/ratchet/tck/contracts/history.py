"""History: executions, logs, archive."""

from __future__ import annotations

from datetime import datetime

from ratchet.model.claim import JobClaim
from ratchet.model.composition import EdgeKind
from ratchet.model.decision import HandBack, VerdictKind
from ratchet.model.identifiers import new_id
from ratchet.model.job import ExecutionStatus, JobFilter, LogEntry
from ratchet.model.status import JobStatus
from ratchet.model.storage import Kept
from ratchet.tck.harness import Harness


class TestExecutions:
    def test_oldest_first(self, harness: Harness) -> None:
        """Runs are listed in the order they happened; uncounted ones only if asked for."""
        claim = harness.running(max_retries=9)
        harness.advance(seconds=1)
        harness.end(claim, harness.another_try())
        second = harness.claim_job(claim.job_id)
        harness.advance(seconds=1)
        harness.end(second, HandBack())
        third = harness.claim_job(claim.job_id)
        harness.advance(seconds=1)
        harness.end(third)
        counted = harness.store.executions(claim.job_id)
        assert [(row.attempt, row.status) for row in counted] == [
            (1, ExecutionStatus.FAILED),
            (2, ExecutionStatus.SUCCEEDED),
        ]
        every = harness.store.executions(claim.job_id, uncounted=True)
        assert [row.claim_id for row in every] == [claim.claim_id, second.claim_id, third.claim_id]

    def test_a_canceled_run_is_written_down(self, harness: Harness) -> None:
        """A run that was canceled is in the full history, uncounted."""
        claim = harness.running()
        harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        assert harness.store.executions(claim.job_id) == []
        (row,) = harness.store.executions(claim.job_id, uncounted=True)
        assert (row.claim_id, row.status, row.counted) == (claim.claim_id, ExecutionStatus.CANCELED, False)

    def test_a_job_that_never_ran(self, harness: Harness) -> None:
        """A job that never ran has no rows, and neither has an unknown job."""
        assert harness.store.executions(harness.canceled(), uncounted=True) == []
        assert harness.store.executions(new_id(), uncounted=True) == []

    def test_purging_old_runs_of_ended_jobs(self, harness: Harness) -> None:
        """Old runs of ended jobs are deleted in portions; runs of live jobs stay."""
        done = [harness.succeeded() for _ in range(3)]
        live = harness.running()
        harness.end(live, harness.another_try(harness.after(days=30)))
        harness.advance(days=1)
        young = harness.succeeded()
        before = harness.after(hours=-1)
        assert [harness.store.purge_executions(before=before, limit=2) for _ in range(3)] == [2, 1, 0]
        assert [harness.store.executions(job_id) for job_id in done] == [[], [], []]
        assert len(harness.store.executions(live.job_id)) == 1
        assert len(harness.store.executions(young)) == 1
        assert harness.status(done[0]) is JobStatus.SUCCEEDED


class TestLogs:
    def entry(self, harness: Harness, claim: JobClaim, sequence: int, message: str = "hello") -> LogEntry:
        """One log line of a run."""
        return LogEntry(
            job_id=claim.job_id,
            claim_id=claim.claim_id,
            sequence=sequence,
            attempt=claim.attempt,
            at=harness.now,
            level="INFO",
            logger="shop.jobs",
            message=message,
        )

    def test_in_the_order_they_were_logged(self, harness: Harness) -> None:
        """Lines of the same microsecond keep their sequence, and their text comes back unchanged."""
        claim = harness.running()
        lines = [self.entry(harness, claim, n, f"line {n} 🧾") for n in range(12)]
        harness.store.append_logs(lines[6:], now=harness.now)
        harness.store.append_logs(lines[:6], now=harness.now)
        stored = harness.store.logs(claim.job_id)
        assert [line.message for line in stored] == [line.message for line in lines]
        line = stored[0]
        assert (line.at, line.level, line.logger, line.attempt) == (harness.now, "INFO", "shop.jobs", 1)

    def test_a_line_is_stored_once(self, harness: Harness) -> None:
        """A line that is sent again after a lost answer is left alone."""
        claim = harness.running()
        harness.store.append_logs([self.entry(harness, claim, 1, "first")], now=harness.now)
        again = [self.entry(harness, claim, 1, "again"), self.entry(harness, claim, 2, "second")]
        harness.store.append_logs(again, now=harness.now)
        assert [line.message for line in harness.store.logs(claim.job_id)] == ["first", "second"]
        harness.store.append_logs([], now=harness.now)

    def test_the_newest_lines(self, harness: Harness) -> None:
        """With a limit, the newest lines are returned, in order."""
        claim = harness.running()
        for n in range(5):
            harness.store.append_logs([self.entry(harness, claim, n, str(n))], now=harness.now)
            harness.advance(seconds=1)
        assert [line.message for line in harness.store.logs(claim.job_id, limit=2)] == ["3", "4"]
        assert harness.store.logs(new_id()) == []

    def test_lines_of_a_lost_run_say_so(self, harness: Harness) -> None:
        """A run that lost its job may still write lines; they are kept and marked as lost."""
        harness.register()
        lost = harness.running()
        harness.rescue()
        harness.store.append_logs([self.entry(harness, lost, 1, "from the lost run")], now=harness.now)
        harness.advance(seconds=1)
        kept = harness.claim_job(lost.job_id, node_id="node-2")
        harness.store.append_logs([self.entry(harness, kept, 1, "from the new run")], now=harness.now)
        expected = [("from the lost run", True), ("from the new run", False)]
        assert [(line.message, line.lost) for line in harness.store.logs(lost.job_id)] == expected
        harness.end(kept)
        assert [(line.message, line.lost) for line in harness.store.logs(lost.job_id)] == expected

    def test_lines_of_failed_attempts_are_not_lost(self, harness: Harness) -> None:
        """An attempt that failed and was retried held its job until its end, so its lines are not marked as lost."""
        claim = harness.running()
        harness.store.append_logs([self.entry(harness, claim, 1)], now=harness.now)
        harness.end(claim, harness.another_try())
        assert [line.lost for line in harness.store.logs(claim.job_id)] == [False]
        harness.end(harness.claim_job(claim.job_id))
        assert [line.lost for line in harness.store.logs(claim.job_id)] == [False]

    def test_purging(self, harness: Harness) -> None:
        """Old lines are deleted in portions."""
        claim = harness.running()
        harness.store.append_logs([self.entry(harness, claim, n) for n in range(3)], now=harness.now)
        harness.advance(days=1)
        harness.store.append_logs([self.entry(harness, claim, 9, "young")], now=harness.now)
        before = harness.after(hours=-1)
        assert [harness.store.purge_logs(before=before, limit=2) for _ in range(3)] == [2, 1, 0]
        assert [line.message for line in harness.store.logs(claim.job_id)] == ["young"]

    def test_deleted_with_their_job(self, harness: Harness) -> None:
        """The lines of a deleted job are deleted too."""
        claim = harness.running()
        harness.store.append_logs([self.entry(harness, claim, 1)], now=harness.now)
        harness.end(claim)
        assert harness.store.delete(claim.job_id)
        assert harness.store.logs(claim.job_id) == []


class TestOldRows:
    def test_each_kind_is_counted(self, harness: Harness) -> None:
        """Ended jobs, dead letters, lines, runs and archived jobs that are older than a time; and of nothing, nothing."""
        store, early = harness.store, harness.now
        assert [store.count_old(kind, before=early, limit=10) for kind in Kept] == [0] * len(Kept)
        done, failed = harness.running(), harness.running()
        harness.running()
        line = LogEntry(
            job_id=done.job_id,
            claim_id=done.claim_id,
            sequence=1,
            attempt=1,
            at=harness.now,
            level="INFO",
            logger="shop",
            message="hello",
        )
        store.append_logs([line], now=harness.now)
        harness.advance(seconds=1)
        harness.end(done)
        harness.end(failed, harness.failure())
        harness.advance(days=1)

        def counts(before: datetime) -> list[int]:
            kinds = (Kept.JOBS, Kept.DEAD_LETTERS, Kept.LOGS, Kept.EXECUTIONS, Kept.ARCHIVE)
            return [store.count_old(kind, before=before, limit=10) for kind in kinds]

        assert counts(harness.now) == [1, 1, 1, 2, 0]
        assert counts(early) == [0] * 5
        assert store.archive(before=harness.now, limit=10, now=harness.now) == 1
        harness.advance(days=1)
        assert counts(harness.now) == [0, 1, 1, 2, 1]

    def test_no_more_than_asked_for(self, harness: Harness) -> None:
        """Counting ends at the limit."""
        for _ in range(3):
            harness.end(harness.running())
        harness.advance(days=1)
        kinds = (Kept.JOBS, Kept.EXECUTIONS)
        assert [harness.store.count_old(kind, before=harness.now, limit=2) for kind in kinds] == [2, 2]

    def test_the_size_names_every_table_that_grows(self, harness: Harness) -> None:
        """Jobs, runs and lines are among the tables; a number of rows is never negative."""
        harness.end(harness.running())
        size = harness.store.size()
        rows = {table.name: table.rows for table in size.tables}
        assert {"scheduler_job", "scheduler_job_execution", "scheduler_job_log"} <= set(rows)
        assert all(count is None or count >= 0 for count in rows.values())


class TestArchive:
    def test_the_parent_of_an_open_batch_stays(self, harness: Harness) -> None:
        """The parent was canceled alone: it is not archived before its children have ended."""
        batch, (child,) = harness.batch_of(1)
        harness.store.cancel(batch.parent.job_id, reason="r", now=harness.now)
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 0
        harness.end(harness.claim_job(child.job_id))
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 2

    def test_old_successes_and_cancellations(self, harness: Harness) -> None:
        """They leave the counts and the plain search, but can still be found if asked for."""
        done, gone = harness.succeeded(tags=("t",)), harness.canceled()
        failed = harness.failed()
        harness.advance(days=8)
        young = harness.succeeded()
        before = harness.record(done)
        assert harness.store.archive(before=harness.after(days=-7), limit=10, now=harness.now) == 2
        record = harness.record(done)
        assert record.archived
        for name in [
            "status",
            "target",
            "payload",
            "result",
            "attempts",
            "created_at",
            "finished_at",
            "root_id",
            "priority",
            "stream",
        ]:
            assert getattr(record, name) == getattr(before, name), name
        assert record.tags == ("t",)
        assert {r.job_id for r in harness.store.find(JobFilter())} == {failed, young}
        everywhere = [r.job_id for r in harness.store.find(JobFilter(include_archived=True))]
        assert everywhere == sorted([done, gone, failed, young], reverse=True)
        assert harness.store.counts()[JobStatus.SUCCEEDED] == 1
        assert harness.store.count(JobFilter(include_archived=True)) == 4
        assert len(harness.store.executions(done)) == 1

    def test_search_reaches_the_archive_by_every_page(self, harness: Harness) -> None:
        """Paging over live and archived jobs neither repeats nor skips a job."""
        ids = [harness.succeeded() for _ in range(4)]
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=2, now=harness.now) == 2
        ids += [harness.submit() for _ in range(3)]
        found, cursor = [], None
        while True:
            page = harness.store.find(JobFilter(include_archived=True), limit=2, cursor=cursor)
            found += [record.job_id for record in page]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == ids[::-1]

    def test_in_portions(self, harness: Harness) -> None:
        """Each call archives at most the limit, until nothing is left."""
        for _ in range(3):
            harness.succeeded()
        harness.advance(days=1)
        assert [harness.store.archive(before=harness.now, limit=2, now=harness.now) for _ in range(3)] == [
            2,
            1,
            0,
        ]

    def test_a_job_that_others_wait_for_stays(self, harness: Harness) -> None:
        """A job that has not ended still needs its result."""
        parent, child = harness.spec(), harness.child(scheduled_at=harness.after(days=30))
        harness.insert([parent, child], [harness.edge(parent, child)])
        harness.end(harness.claim_job(parent.job_id))
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 0
        harness.store.cancel(child.job_id, reason="r", now=harness.now)
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 2

    def test_what_a_retry_could_revive_stays(self, harness: Harness) -> None:
        """Jobs that a failure canceled stay while the failed job can be retried; after its retry they run."""
        parent, child, grandchild = harness.spec(), harness.child(), harness.child()
        edges = [harness.edge(parent, child), harness.edge(child, grandchild)]
        harness.insert([parent, child, grandchild], edges)
        harness.end(harness.claim_job(parent.job_id), harness.failure())
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 0
        assert harness.store.retry(parent.job_id, now=harness.now)
        for spec in (parent, child, grandchild):
            harness.end(harness.claim_job(spec.job_id))
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 3

    def test_a_batch_with_failed_children_stays(self, harness: Harness) -> None:
        """Its parent and what the failure canceled stay: after a retry of the failed child they run."""
        batch, (good, bad) = harness.batch_of(2)
        follower, behind = harness.child(), harness.child()
        edges = [
            harness.edge(batch.parent, follower, EdgeKind.CONDITION),
            harness.edge(follower, behind),
        ]
        harness.insert([follower, behind], edges)
        harness.end(harness.claim_job(good.job_id))
        harness.end(harness.claim_job(bad.job_id), harness.failure())
        not_taken = harness.verdict(follower, VerdictKind.NOT_TAKEN)
        harness.end(harness.claim_job(batch.parent.job_id), verdicts=(not_taken,))
        assert harness.statuses([follower.job_id, behind.job_id]) == [JobStatus.CANCELED] * 2
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 1
        assert harness.record(good.job_id).archived
        assert harness.store.retry_failed(batch.batch_id, now=harness.now) == 1
        harness.end(harness.claim_job(bad.job_id))
        taken = harness.verdict(follower, VerdictKind.TAKEN)
        harness.end(harness.claim_job(batch.parent.job_id), verdicts=(taken,))
        for spec in (follower, behind):
            harness.end(harness.claim_job(spec.job_id))
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 4

    def test_a_batch_goes_when_its_failed_children_have_gone(self, harness: Harness) -> None:
        """Dead letters in the archive cannot be retried: nothing waits for them any more."""
        batch, (bad,) = harness.batch_of(1)
        follower = harness.child()
        harness.insert([follower], [harness.edge(batch.parent, follower, EdgeKind.CONDITION)])
        harness.end(harness.claim_job(bad.job_id), harness.failure())
        not_taken = harness.verdict(follower, VerdictKind.NOT_TAKEN)
        harness.end(harness.claim_job(batch.parent.job_id), verdicts=(not_taken,))
        harness.advance(days=8)
        assert harness.store.pause(bad.job_id, now=harness.now)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 0
        assert harness.store.resume(bad.job_id, now=harness.now)
        assert harness.store.purge_dead_letters(before=harness.now, limit=10) == 1
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 2

    def test_a_join_stays_while_any_parent_has_failed(self, harness: Harness) -> None:
        """Two parents fail and one is retried with success: the retry of the other lets the join run, and what follows."""
        first, second = harness.spec(), harness.spec()
        join, behind = harness.child(needs=2), harness.child()
        edges = [harness.edge(first, join), harness.edge(second, join), harness.edge(join, behind)]
        harness.insert([first, second, join, behind], edges)
        for spec in (first, second):
            harness.end(harness.claim_job(spec.job_id), harness.failure())
        assert harness.statuses([join.job_id, behind.job_id]) == [JobStatus.CANCELED] * 2
        assert harness.store.retry(first.job_id, now=harness.now)
        harness.end(harness.claim_job(first.job_id))
        harness.advance(days=8)
        moved = [harness.store.archive(before=harness.now, limit=1, now=harness.now) for _ in range(3)]
        assert moved == [1, 0, 0]
        assert harness.record(first.job_id).archived
        assert harness.store.retry(second.job_id, now=harness.now)
        for spec in (second, join, behind):
            harness.end(harness.claim_job(spec.job_id))
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 3

    def test_a_join_goes_when_no_parent_can_be_retried(self, harness: Harness) -> None:
        """The failed parent is in the archive: the canceled join and what follows it go, too."""
        first, second = harness.spec(), harness.spec()
        join, behind = harness.child(needs=2), harness.child()
        edges = [harness.edge(first, join), harness.edge(second, join), harness.edge(join, behind)]
        harness.insert([first, second, join, behind], edges)
        harness.end(harness.claim_job(first.job_id))
        harness.end(harness.claim_job(second.job_id), harness.failure())
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 1
        assert harness.store.purge_dead_letters(before=harness.now, limit=10) == 1
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 2

    def test_what_stays_is_not_in_the_way(self, harness: Harness) -> None:
        """Older jobs that must stay do not use up the limit."""
        for _ in range(3):
            batch, (bad,) = harness.batch_of(1)
            harness.end(harness.claim_job(bad.job_id), harness.failure())
            harness.end(harness.claim_job(batch.parent.job_id))
        done = [harness.succeeded() for _ in range(2)]
        harness.advance(days=8)
        moved = [harness.store.archive(before=harness.now, limit=1, now=harness.now) for _ in range(3)]
        assert moved == [1, 1, 0]
        assert all(harness.record(job_id).archived for job_id in done)

    def test_a_child_of_an_open_batch_stays(self, harness: Harness) -> None:
        """The batch may still be asked for its children's results."""
        batch, children = harness.batch_of(2)
        first = harness.claim_job(children[0].job_id)
        harness.end(first)
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 0
        harness.end_all(harness.claim())
        harness.end(harness.claim_job(batch.parent.job_id))
        harness.advance(days=8)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 3

    def test_purging_the_archive(self, harness: Harness) -> None:
        """Jobs that were archived before the date are deleted with their runs and tags; the idempotency key stays."""
        old = harness.succeeded(tags=("t",), idempotency_key="i")
        harness.advance(days=1)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 1
        assert harness.store.purge_archive(before=harness.after(seconds=-1), limit=10) == 0
        harness.advance(days=30)
        assert harness.store.purge_archive(before=harness.after(days=-1), limit=10) == 1
        assert harness.store.get(old) is None
        assert harness.store.executions(old) == []
        assert harness.store.tag_counts() == {}
        answer = harness.store.insert([harness.spec(idempotency_key="i")], now=harness.now)[0]
        assert (answer.job_id, answer.created) == (old, False)

    def test_the_oldest(self, harness: Harness) -> None:
        """When the oldest job was created, and when the first job came into the archive; None if there is none."""
        store = harness.store
        assert (store.oldest_created_at(), store.oldest_archived_at()) == (None, None)
        begun = harness.now
        harness.succeeded()
        harness.advance(days=1)
        second = harness.now
        harness.succeeded()
        assert (store.oldest_created_at(), store.oldest_archived_at()) == (begun, None)
        assert store.archive(before=harness.after(hours=-1), limit=10, now=harness.now) == 1
        assert (store.oldest_created_at(), store.oldest_archived_at()) == (second, second)
        harness.advance(days=1)
        assert store.archive(before=harness.after(hours=-1), limit=10, now=harness.now) == 1
        assert (store.oldest_created_at(), store.oldest_archived_at()) == (None, second)
