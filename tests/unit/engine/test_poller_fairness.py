"""The poller goes on where it stopped: fairness keys take turns from claim to claim."""

from __future__ import annotations

from ratchet.testing import ManualScheduler, manual_scheduler

served: list[str] = []


def serve(name: str) -> None:
    served.append(name)


def submit(scheduler: ManualScheduler, key: str, count: int) -> None:
    scheduler.submit_all(
        scheduler.enqueue(serve, f"{key}{number}").with_fairness_key(key) for number in range(count)
    )


def test_one_job_at_a_time_goes_round() -> None:
    """A node with one slot claims one job at a time, and yet everybody has a turn before anybody has two."""
    served.clear()
    scheduler = manual_scheduler()
    submit(scheduler, "big", 6)
    submit(scheduler, "small", 2)
    submit(scheduler, "tiny", 1)
    scheduler.enqueue(serve, "nobody's").submit()
    scheduler.drain()
    scheduler.close()
    turns = ["nobody's", "big0", "small0", "tiny0", "big1", "small1", "big2", "big3", "big4", "big5"]
    assert served == turns


def test_a_key_that_comes_later_is_next() -> None:
    """However many jobs of another key were there before."""
    served.clear()
    scheduler = manual_scheduler()
    submit(scheduler, "big", 20)
    scheduler.drain(5)
    submit(scheduler, "small", 1)
    scheduler.drain(2)
    scheduler.close()
    assert served == [*(f"big{number}" for number in range(5)), "small0", "big5"]
