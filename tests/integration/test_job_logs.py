"""Log lines of jobs, where several schedulers run in one process; which store it is makes no difference."""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import UUID

from ratchet import Options, Scheduler
from tests.support.waiting import until

logger = logging.getLogger("tests.shop")


def say(text: str) -> None:
    logger.warning("%s", text)


def _scheduler(path: Path) -> Scheduler:
    return Scheduler(f"sqlite:///{path}", allow=[__name__], options=Options(auto_migrate=True))


def _lines(scheduler: Scheduler, job_id: UUID) -> list[str]:
    return [line.message for line in scheduler.jobs.logs(job_id)]


def test_two_databases(tmp_path: Path) -> None:
    """A line reaches the database of its job, and no other; a line outside of jobs reaches none."""
    one, two = _scheduler(tmp_path / "one.db"), _scheduler(tmp_path / "two.db")
    with one, two:
        first, second = one.enqueue_now(say, "for one"), two.enqueue_now(say, "for two")
        first.result(timeout=20)
        second.result(timeout=20)
        logger.warning("for nobody")
        until(lambda: _lines(one, first.id) and _lines(two, second.id))
    # Stopped: whatever was kept has been written.
    assert (_lines(one, first.id), _lines(two, second.id)) == (["for one"], ["for two"])
    assert (_lines(one, second.id), _lines(two, first.id)) == ([], [])
    one.close()
    two.close()


def test_two_schedulers_on_one_database(tmp_path: Path) -> None:
    """A line is stored once, whichever of them runs the job."""
    one, two = _scheduler(tmp_path / "shop.db"), _scheduler(tmp_path / "shop.db")
    with one, two:
        handles = [one.enqueue_now(say, str(number)) for number in range(20)]
        for handle in handles:
            handle.result(timeout=20)
    assert [_lines(one, handle.id) for handle in handles] == [[str(number)] for number in range(20)]
    one.close()
    two.close()
