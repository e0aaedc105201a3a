"""Jobs that end faster than the store can be told: what is ended and not written has a limit."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ratchet import Options, Scheduler
from ratchet.stores.sql.claims import SqlClaims
from ratchet.stores.sql.transitions import SqlTransitions
from tests.lifecycle.jobs import double

JOBS = 400


def test_no_more_is_claimed_than_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Ten outcomes at a time, 30 ms each: a node of four slots never holds more than a few portions, and does all.

    After a crash all of them would be run once more.
    """
    held, most = [0], [0]
    claim, complete = SqlClaims.claim_next_batch, SqlTransitions.complete

    def counted(self: SqlClaims, *args: Any, **kwargs: Any) -> Any:
        jobs = claim(self, *args, **kwargs)
        held[0] += len(jobs)
        most[0] = max(most[0], held[0])
        return jobs

    def slow(self: SqlTransitions, completions: Any, **kwargs: Any) -> Any:
        time.sleep(0.03)
        answers = complete(self, completions, **kwargs)
        held[0] -= len(answers)
        return answers

    monkeypatch.setattr(SqlClaims, "claim_next_batch", counted)
    monkeypatch.setattr(SqlTransitions, "complete", slow)
    options = Options(concurrency=4, max_prefetch=20, completion_batch=10)
    url = f"sqlite:///{tmp_path}/jobs.db"
    with closing(Scheduler(url, allow=["tests.lifecycle"], options=options)) as scheduler, scheduler:
        handles = scheduler.enqueue_many(double, [(number,) for number in range(JOBS)])
        assert [handle.result(timeout=60) for handle in handles] == [2 * number for number in range(JOBS)]
    # four portions that wait, what is running and prefetched, and the claim that was under way when the fourth was full
    assert most[0] <= 40 + 2 * (4 + 20)
    assert held[0] == 0
