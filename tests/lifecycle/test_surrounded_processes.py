"""``around`` runs for jobs of the process lane, in the process that runs the function."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import JobContext, JobFailedError, Options, Scheduler
from tests.lifecycle import surrounded

ALLOWED = ["tests.lifecycle.surrounded"]


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    made = Scheduler(f"sqlite:///{tmp_path}/jobs.db", allow=ALLOWED, options=Options(process_concurrency=1))
    yield made
    made.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def submit(
    scheduler: Scheduler, ledger: Path, target: Callable[[], Any], timeout: float | None = None
) -> Any:
    """The result of one job of the process lane; without retries."""
    job = (
        scheduler.job(lane="process")(target).enqueue().with_param("ledger", str(ledger)).with_max_retries(0)
    )
    return (
        (job if timeout is None else job.with_timeout(timedelta(seconds=timeout))).submit().result(timeout=60)
    )


def words(ledger: Path) -> list[str]:
    return [line.split()[0] for line in ledger.read_text().splitlines()] if ledger.exists() else []


def pids(ledger: Path) -> set[int]:
    return {int(line.split()[1]) for line in ledger.read_text().splitlines()}


def test_it_surrounds_the_function_in_its_process(scheduler: Scheduler, ledger: Path) -> None:
    """Entered before the call, left after it, with the attempt and the target; in the child, not in the node."""
    scheduler.around(surrounded.outer)
    with scheduler:
        child = submit(scheduler, ledger, surrounded.work)
    assert words(ledger) == ["enter:1:tests.lifecycle.surrounded:work", "work", "exit"]
    assert pids(ledger) == {child}
    assert child != os.getpid()


def test_it_sees_the_exception(scheduler: Scheduler, ledger: Path) -> None:
    """And the job fails with that exception."""
    scheduler.around(surrounded.outer)
    with scheduler, pytest.raises(JobFailedError, match="no luck"):
        submit(scheduler, ledger, surrounded.fail)
    assert words(ledger)[1:] == ["failed", "exit"]


def test_it_may_swallow_and_refuse_and_postpone(scheduler: Scheduler, ledger: Path) -> None:
    """By the same rules as in the other lanes."""
    scheduler.around(surrounded.postponing)
    scheduler.around(surrounded.swallowing)
    with scheduler:
        assert submit(scheduler, ledger, surrounded.miss) is None
    assert words(ledger) == ["later", "swallowed"]
    scheduler.around(surrounded.refusing)
    with scheduler, pytest.raises(JobFailedError, match="not today"):
        submit(scheduler, ledger, surrounded.work)


def test_a_timeout_kills_it_too(scheduler: Scheduler, ledger: Path) -> None:
    """Nothing of it runs after the kill, and the node goes on."""
    scheduler.around(surrounded.outer)
    with scheduler:
        submit(scheduler, ledger, surrounded.work)
        ledger.unlink()
        with pytest.raises(JobFailedError, match="timeout"):
            submit(scheduler, ledger, surrounded.hang, timeout=1.0)
        assert words(ledger) == ["enter:1:tests.lifecycle.surrounded:hang", "work"]
        submit(scheduler, ledger, surrounded.work)


def test_a_closure_runs_in_the_node(scheduler: Scheduler, ledger: Path) -> None:
    """Another process cannot find it; it sees results and exceptions all the same."""
    seen: list[str] = []

    @scheduler.around
    def closure(ctx: JobContext) -> Iterator[None]:
        seen.append(f"enter {ctx.attempt}")
        try:
            yield
        except ValueError:
            seen.append("failed")
            raise
        seen.append("exit")

    with scheduler:
        submit(scheduler, ledger, surrounded.work)
        assert seen == ["enter 1", "exit"]
        with pytest.raises(JobFailedError, match="no luck"):
            submit(scheduler, ledger, surrounded.fail)
    assert seen[2:] == ["enter 1", "failed"]


def test_the_context_has_the_signal(scheduler: Scheduler) -> None:
    """What released the job is known in its process, as in the other lanes."""
    job = scheduler.job(lane="process")(surrounded.approved_by)
    with scheduler:
        handle = job.enqueue().await_signal("order:1", timeout=timedelta(hours=1)).submit()
        assert scheduler.signal("order:1", {"by": "ann"}) == 1
        assert handle.result(timeout=60) == "order:1 ann"
