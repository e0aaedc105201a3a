"""``scheduler.run()``: how long it waits for running jobs, and what becomes of those that do not finish."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ratchet import ConfigurationError, Job, JobFilter, JobStatus, Scheduler
from ratchet.stores.memory import MemoryStore

#: A program with one job, which asks its own process to stop. The log goes to stdout.
PROGRAM = """
    import logging, os, signal, sys, time
    from ratchet import Scheduler

    logging.basicConfig(level="INFO", stream=sys.stdout)
    scheduler = Scheduler("sqlite:///jobs.db")

    def again(record):
        if {signals} == 2 and "may finish within 30s" in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)
        return True

    logging.getLogger("ratchet.engine").addFilter(again)

    @scheduler.job
    def work():
        os.kill(os.getpid(), signal.SIGTERM)
        {body}

    work.enqueue().submit()
    print("ended:", {call})
"""
ENDLESS = "while True: time.sleep(0.01)"
DEAF = "time.sleep(60)"


def run(folder: Path, call: str, body: str = ENDLESS, signals: int = 1, **environment: str) -> str:
    """What the program has said until it ended by itself."""
    script = folder / "program.py"
    script.write_text(textwrap.dedent(PROGRAM).format(call=call, body=body, signals=signals))
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def stored(folder: Path) -> Job:
    """The program's job; no node may be left."""
    looker = Scheduler(f"sqlite:///{folder}/jobs.db")
    assert looker.nodes.list() == []
    (job,) = looker.jobs.find(JobFilter()).items
    looker.close()
    return job


@pytest.mark.parametrize(
    ("call", "environment", "signals"),
    [
        ("scheduler.run(timeout=0.2)", {}, 1),
        ("scheduler.run(drain=False)", {}, 1),
        ("scheduler.run()", {"RATCHET_DRAIN": "200ms"}, 1),
        ("scheduler.run()", {}, 2),
    ],
    ids=["timeout", "no drain", "variable", "second signal"],
)
def test_what_does_not_finish_in_time_is_handed_back(
    tmp_path: Path, call: str, environment: dict[str, str], signals: int
) -> None:
    """The drain time is said by the caller, by the environment or by a second signal; no attempt is counted."""
    said = run(tmp_path, call, signals=signals, **environment)
    assert "ended: True" in said
    assert "1 job not finished within the drain time" in said
    assert "0 jobs finished, 1 handed back" in said
    job = stored(tmp_path)
    assert (job.status, job.attempts, job.crashes) == (JobStatus.PENDING, 0, 0)


def test_a_job_that_finishes_in_time_is_waited_for(tmp_path: Path) -> None:
    """And the last line says that nothing was handed back."""
    said = run(tmp_path, "scheduler.run()", "time.sleep(0.5)")
    assert "1 running job may finish within 30s" in said
    assert "1 job finished, 0 handed back" in said
    assert stored(tmp_path).status is JobStatus.SUCCEEDED


def test_code_that_does_not_stop_is_handed_back_when_the_process_exits(tmp_path: Path) -> None:
    """Silence would be counted as a crash of the job, although nothing has crashed."""
    said = run(tmp_path, "scheduler.run(timeout=0.1)", DEAF)
    assert "ended: False" in said
    assert "1 job did not stop when interrupted; kept by this process until that code ends" in said
    assert "1 job whose code did not stop handed back" in said
    job = stored(tmp_path)
    assert (job.status, job.attempts, job.crashes) == (JobStatus.PENDING, 0, 0)


def test_a_drain_time_that_is_none_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the process is told to stop, and there is no time to mend it."""
    monkeypatch.setenv("RATCHET_DRAIN", "soon")
    scheduler = Scheduler(store=MemoryStore(), allow=["tests.support.running_jobs"])
    with pytest.raises(ConfigurationError, match="RATCHET_DRAIN: 'soon' is not a duration"):
        scheduler.start()
    assert not scheduler.running
