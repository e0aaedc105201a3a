"""Dead letters in SQL: what the conformance kit does not reach."""

from __future__ import annotations

import pytest

from ratchet.model.errors import InvalidJob
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus
from tests.stores.sql_stores import SqlSteps


class TestDeadLetters:
    def test_the_archive_only_where_it_is_asked_for(self, steps: SqlSteps) -> None:
        """Pages run over both places in the order of the failures; archived ones have no alerts any more."""
        old = [steps.failed() for _ in range(3)]
        steps.advance(days=31)
        assert steps.store.purge_dead_letters(before=steps.after(days=-30), limit=2) == 2
        new = [steps.failed() for _ in range(2)]
        assert {letter.job_id for letter in steps.store.dead_letters()} == {*new, old[2]}
        everything = JobFilter(include_archived=True)
        seen, cursor = [], None
        while True:
            page = steps.store.dead_letters(everything, limit=2, cursor=cursor)
            seen += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        assert [letter.job_id for letter in seen] == [*reversed(new), *reversed(old)]
        assert [len(letter.alerts) for letter in seen] == [1, 1, 1, 0, 0]

    def test_a_filter_for_other_statuses_finds_none(self, steps: SqlSteps) -> None:
        """Dead letters are FAILED; a filter that excludes it matches none of them."""
        letter = steps.failed()
        assert list(steps.store.dead_letters(JobFilter(statuses=[JobStatus.SUCCEEDED]))) == []
        some = JobFilter(statuses=[JobStatus.SUCCEEDED, JobStatus.FAILED])
        assert [found.job_id for found in steps.store.dead_letters(some)] == [letter]

    def test_a_cursor_of_something_else(self, steps: SqlSteps) -> None:
        """Refused with a word on what to pass."""
        with pytest.raises(InvalidJob, match="next_cursor"):
            steps.store.dead_letters(cursor="nonsense")
