"""``ratchet worker`` with real processes: it works, drains, survives, and rescues only the dead."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from ratchet.api.observe.handles import JobHandle
from ratchet.model.cluster import NodeState
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler
from tests.cluster import shop
from tests.cluster.conftest import StartWorker
from tests.cluster.workers import ROOT, Worker, is_running
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

#: Dead must be noticed within this time.
NOTICED = 8.0


def started(ledger: str, name: str) -> list[int]:
    """The processes that have begun to run the job called *name*, in order."""
    return [int(words[2]) for words in shop.lines(ledger) if words[:2] == ["start", name]]


def wait_started(ledger: str, name: str, times: int = 1, seconds: float = 20.0) -> float:
    return until(lambda: len(started(ledger, name)) >= times, seconds, f"{name} did not start {times} times")


def result_of(handle: JobHandle[str], worker: Worker, seconds: float = 30.0) -> str:
    try:
        return handle.result(timeout=seconds)
    except TimeoutError:
        raise AssertionError(f"{handle.job()}\n{worker.log}") from None


def test_runs_what_another_process_submits(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """Jobs stored before and after the worker starts run in its children, and it says who they are."""
    before = scheduler.enqueue_now(shop.note, ledger, "before")
    worker = start_worker("one", "--processes", "2").wait_ready(2)
    after = scheduler.enqueue_now(shop.note, ledger, "after")
    assert result_of(before, worker) == "before"
    assert result_of(after, worker) == "after"
    ran = {int(words[2]) for words in shop.lines(ledger)}
    assert ran <= set(worker.children())
    assert worker.process.pid not in ran, "the supervisor runs no user code"
    nodes = {node.node_id: node for node in scheduler.nodes.list()}
    assert set(nodes) == set(worker.nodes())
    assert all(node.silence == timedelta(seconds=5) for node in nodes.values())


def test_sigterm_lets_running_jobs_finish(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """A drain waits for what runs, hands back what has not started, and leaves no node behind."""
    worker = start_worker("one", "--concurrency", "1").wait_ready()
    running = scheduler.enqueue_now(shop.slow, ledger, "running", 2.0)
    wait_started(ledger, "running")
    waiting = [scheduler.enqueue_now(shop.slow, ledger, f"waiting-{n}", 0.0) for n in range(5)]
    worker.signal(signal.SIGTERM)
    assert worker.wait(10.0) == 0
    job = running.job()
    assert (job.status, job.attempts, job.crashes) == (JobStatus.SUCCEEDED, 1, 0)
    for handle in waiting:
        job = handle.job()
        assert (job.status, job.attempts, job.crashes) == (JobStatus.PENDING, 0, 0)
        assert scheduler.jobs.executions(handle.id) == []
    assert scheduler.nodes.list() == []


@pytest.mark.parametrize("job", [shop.slow, shop.deaf], ids=["python", "c-call"])
def test_sigterm_hands_back_what_does_not_finish(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str, job: object
) -> None:
    """After the drain timeout the rest is handed back and the processes end; no attempt and no crash is counted."""
    worker = start_worker("one", "--drain-timeout", "1s").wait_ready()
    handle = scheduler.enqueue_now(job, ledger, "long", 60.0)  # type: ignore[call-overload]
    wait_started(ledger, "long")
    child = worker.children()[0]
    worker.signal(signal.SIGTERM)
    assert worker.wait(8.0) == 0
    assert not is_running(child)
    stored = handle.job()
    assert (stored.status, stored.attempts, stored.crashes) == (JobStatus.PENDING, 0, 0), worker.log
    assert scheduler.jobs.executions(handle.id) == []
    assert scheduler.nodes.list() == []


def test_a_second_interrupt_does_not_wait(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """Ctrl-C twice ends the worker at once, and what was running is handed back, uncounted."""
    worker = start_worker("one").wait_ready()
    handle = scheduler.enqueue_now(shop.slow, ledger, "long", 60.0)
    wait_started(ledger, "long")
    worker.signal(signal.SIGINT)
    time.sleep(1.0)
    assert worker.process.poll() is None
    worker.signal(signal.SIGINT)
    assert worker.wait(4.0) == 0
    stored = handle.job()
    assert (stored.status, stored.attempts, stored.crashes) == (JobStatus.PENDING, 0, 0)


def test_a_killed_child_is_replaced_and_its_job_runs_again(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """Kill -9 for the only child: another comes, notices the death and runs the job; one crash, one attempt."""
    worker = start_worker("one").wait_ready()
    handle = scheduler.enqueue_now(shop.slow, ledger, "job", 1.5)
    wait_started(ledger, "job")
    first = worker.children()[0]
    os.kill(first, signal.SIGKILL)
    wait_started(ledger, "job", 2, 15.0)
    second = int(result_of(handle, worker))
    assert second != first
    assert second in worker.children()
    job = handle.job()
    assert (job.status, job.attempts, job.crashes) == (JobStatus.SUCCEEDED, 1, 1)


def test_a_dead_worker_is_noticed_in_seconds(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """The job of a worker that was killed with -9, children and all, starts on another within 8 s."""
    victim = start_worker("victim").wait_ready()
    handle = scheduler.enqueue_now(shop.slow, ledger, "job", 60.0)
    wait_started(ledger, "job")
    other = start_worker("other").wait_ready()
    time.sleep(3.0)
    victim.kill_group()
    noticed = wait_started(ledger, "job", 2, NOTICED)
    assert started(ledger, "job")[1] in other.children(), f"noticed after {noticed:.1f} s"
    job = handle.job()
    assert (job.status, job.crashes) == (JobStatus.RUNNING, 1)


def test_a_job_that_holds_the_interpreter_is_not_robbed(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """No thread of the child runs for 8 s and more: the supervisor beats for it, and nobody rescues it."""
    length = shop.greedy_length(8.0)
    other = start_worker("other", "--queues", "other").wait_ready()
    worker = start_worker("busy").wait_ready()
    time.sleep(2.0)  # they have seen each other alive
    handle = scheduler.enqueue_now(shop.greedy, ledger, "greedy", length)
    assert result_of(handle, worker, 60.0) in [str(pid) for pid in worker.children()]
    held = float(next(words[3] for words in shop.lines(ledger) if words[0] == "end"))
    assert held >= 6.0, "the regular expression was not slow enough for this test"
    job = handle.job()
    assert (job.attempts, job.crashes) == (1, 0)
    assert len(started(ledger, "greedy")) == 1
    assert [node.state for node in scheduler.nodes.list()] == [NodeState.ACTIVE] * 2
    assert "declared dead" not in worker.log + other.log


def test_a_stopped_child_is_rescued_and_changes_nothing_when_it_wakes(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """
    SIGSTOP is death to the others within 8 s; the late result of the sleeper is refused, and it starts over.

    What it takes when it wakes, it takes as a new node: as the old one it would begin a job that others hand back.
    """
    victim = start_worker("victim", "--queues", "default,victims").wait_ready()
    handle = scheduler.enqueue_now(shop.slow, ledger, "job", 7.0)
    wait_started(ledger, "job")
    sleeper = victim.children()[0]
    other = start_worker("other", "--queues", "default").wait_ready()
    time.sleep(2.0)  # they have seen each other alive
    os.kill(sleeper, signal.SIGSTOP)
    try:
        wait_started(ledger, "job", 2, NOTICED)
        assert result_of(handle, other) == str(other.children()[0])
        mine = scheduler.enqueue(shop.slow, ledger, "mine", 2.0).with_queue("victims").submit()
    finally:
        os.kill(sleeper, signal.SIGCONT)
    until(lambda: "declared dead" in victim.log, 15.0, "the sleeper did not learn that it was dead")
    until(
        lambda: sum(node.state is NodeState.ACTIVE for node in scheduler.nodes.list()) == 2,
        15.0,
        "the sleeper did not register again",
    )
    job = handle.job()
    assert (job.status, job.attempts, job.crashes) == (JobStatus.SUCCEEDED, 1, 1)
    assert job.result == str(other.children()[0]), "the sleeper overwrote the result"
    assert is_running(sleeper)
    assert len(started(ledger, "job")) == 2
    assert result_of(mine, victim) == str(sleeper)
    assert started(ledger, "mine") == [sleeper]
    again = scheduler.enqueue_many(shop.note, [(ledger, f"later-{n}") for n in range(20)])
    assert [result_of(each, victim) for each in again] == [f"later-{n}" for n in range(20)]


def test_children_drain_when_their_supervisor_is_killed(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """Kill -9 for the supervisor alone: its child finishes its job, and ends."""
    worker = start_worker("one").wait_ready()
    handle = scheduler.enqueue_now(shop.slow, ledger, "job", 2.0)
    wait_started(ledger, "job")
    child = worker.children()[0]
    worker.signal(signal.SIGKILL)
    assert result_of(handle, worker) == str(child)
    until(lambda: not is_running(child), 10.0, "the child goes on without a supervisor")
    job = handle.job()
    assert (job.attempts, job.crashes) == (1, 0)
    assert scheduler.nodes.list() == []


def test_a_child_with_threads_that_hang_is_replaced(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """Three threads that cannot be stopped cost a process its place; their jobs have failed by then."""
    worker = start_worker("one").wait_ready()
    first = worker.children()[0]
    hanging = [
        scheduler.enqueue(shop.deaf, ledger, f"deaf-{n}", 120.0).with_timeout(timedelta(seconds=0.5)).submit()
        for n in range(3)
    ]
    for handle in hanging:
        handle.wait(timeout=20.0)
        assert handle.status() is JobStatus.FAILED
    until(lambda: not is_running(first), 20.0, f"it was not replaced:\n{worker.log}")
    worker.wait_ready()
    assert worker.children() != [first]
    assert result_of(scheduler.enqueue_now(shop.note, ledger, "after"), worker) == "after"


def test_only_the_named_queues_are_served(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """``--queues`` decides what a worker takes, whatever the app says."""
    emails = scheduler.enqueue(shop.note, ledger, "email").with_queue("emails").submit()
    other = scheduler.enqueue_now(shop.note, ledger, "other")
    worker = start_worker("one", "--queues", "emails").wait_ready()
    assert result_of(emails, worker) == "email"
    time.sleep(1.0)
    assert other.status() is JobStatus.PENDING


def test_an_app_that_cannot_be_imported_ends_the_worker(start_worker: StartWorker) -> None:
    """The reason is said once, with the line at fault and without a traceback of Ratchet's own."""
    worker = start_worker("one", "--processes", "2", app="tests.cluster.broken_app:scheduler")
    assert worker.wait(20.0) == 1
    assert worker.log.count('TIMEOUT = int("thirty")') == 1
    assert "ratchet/cli" not in worker.log


def test_sighup_replaces_the_processes(scheduler: Scheduler, start_worker: StartWorker, ledger: str) -> None:
    """A rolling restart loses no job: what runs in the old process finishes there."""
    worker = start_worker("one").wait_ready()
    old = worker.children()[0]
    handle = scheduler.enqueue_now(shop.slow, ledger, "job", 3.0)
    wait_started(ledger, "job")
    worker.signal(signal.SIGHUP)
    until(lambda: len(worker.nodes()) == 2, 20.0, f"no successor came:\n{worker.log}")
    assert result_of(handle, worker) == str(old)
    until(lambda: not is_running(old), 10.0, "the old process did not leave")
    assert handle.job().attempts == 1
    worker.signal(signal.SIGTERM)
    assert worker.wait(15.0) == 0


# --- what does not depend on the store

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@on_sqlite
def test_a_process_that_shows_no_life_for_long_is_replaced(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """Beyond --unresponsive-after it is a wedge: the process says where it hangs, dies, and its job is a crash."""
    worker = start_worker("one", "--unresponsive-after", "3s").wait_ready()
    first = worker.children()[0]
    handle = scheduler.enqueue_now(shop.greedy, ledger, "greedy", shop.greedy_length(60.0))
    until(lambda: not is_running(first), 15.0, f"it was not killed:\n{worker.log}")
    assert "no sign of life" in worker.log
    until(lambda: "in greedy" in worker.log, 10.0, "the stack of the thread that hangs is not in the log")
    until(lambda: handle.job().crashes == 1, 10.0, "the crash was not counted")


@on_sqlite
def test_sigterm_for_the_whole_group_is_one_drain(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """A process manager that signals every process of the group gets the same clean end."""
    worker = start_worker("one", "--processes", "2").wait_ready(2)
    handle = scheduler.enqueue_now(shop.slow, ledger, "job", 2.0)
    wait_started(ledger, "job")
    os.killpg(worker.process.pid, signal.SIGTERM)
    assert worker.wait(15.0) == 0
    job = handle.job()
    assert (job.status, job.attempts, job.crashes) == (JobStatus.SUCCEEDED, 1, 0)
    assert scheduler.nodes.list() == []


@on_sqlite
def test_reload_restarts_on_a_changed_file(
    scheduler: Scheduler, start_worker: StartWorker, tmp_path: Path, ledger: str
) -> None:
    """With --reload the new code runs after a file was saved; a mistake is told and the next save mends it."""
    package = tmp_path / "reloaded"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(reloaded_app("first"))
    worker = start_worker("one", "--reload", app="reloaded.jobs:scheduler", cwd=tmp_path).wait_ready()
    other = Scheduler(scheduler.backend.url, allow=["reloaded"])  # type: ignore[attr-defined]
    sys.path.insert(0, str(tmp_path))
    try:
        from reloaded.jobs import answer  # type: ignore[import-not-found]

        assert result_of(other.enqueue_now(answer), worker) == "first"
        (package / "jobs.py").write_text("import nothing_that_exists\n")
        until(lambda: "nothing_that_exists" in worker.log, 20.0, "the mistake was not told")
        (package / "jobs.py").write_text(reloaded_app("second"))
        assert result_of(other.enqueue_now(answer), worker) == "second"
    finally:
        sys.path.remove(str(tmp_path))
        other.close()


def reloaded_app(answer: str) -> str:
    return f"""
from ratchet.scheduler import Scheduler

scheduler = Scheduler(allow=["reloaded"])

def answer():
    return {answer!r}
"""


def test_a_database_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """At the start a store that does not answer is tried again, and the password is in no log line."""
    worker = Worker("postgresql://app:hunter2@127.0.0.1:1/shop", tmp_path, "one")
    try:
        until(lambda: "will" in worker.log or "127.0.0.1" in worker.log, 20.0, "nothing was said")
        time.sleep(2.0)
        assert worker.process.poll() is None
        worker.signal(signal.SIGTERM)
        assert worker.wait(15.0) == 0
        assert "hunter2" not in worker.log
        assert "Traceback" not in worker.log
    finally:
        worker.close()


@on_sqlite
def test_a_store_that_the_app_names_cannot_be_overruled(start_worker: StartWorker, tmp_path: Path) -> None:
    """--url chooses the store of an app that names none; one that does is told so."""
    (tmp_path / "named_app.py").write_text(
        "from ratchet.scheduler import Scheduler\n"
        "scheduler = Scheduler('sqlite:///named.db', allow=['named_app'])\n"
    )
    worker = start_worker("one", "--url", "sqlite:///other.db", app="named_app", cwd=tmp_path)
    assert worker.wait(20.0) == 1
    assert "names its store in its code" in worker.log
    assert not (tmp_path / "other.db").exists()


@on_sqlite
def test_log_lines_can_be_json(scheduler: Scheduler, start_worker: StartWorker, ledger: str) -> None:
    """With --json every line on stderr is an object, the supervisor's and the children's."""
    worker = start_worker("one", "--json").wait_ready()
    worker.signal(signal.SIGTERM)
    assert worker.wait(15.0) == 0
    levels = [json.loads(line)["level"] for line in worker.log.splitlines()]
    assert levels


@on_sqlite
def test_every_line_is_json_whatever_happens(
    scheduler: Scheduler, start_worker: StartWorker, url: str, ledger: str, tmp_path: Path
) -> None:
    """Warnings at the import, jobs that succeed, fail and hang, threads that end badly: all is JSON and names its job."""
    (tmp_path / "noisy.py").write_text(NOISY_APP)
    worker = start_worker(
        "one",
        *("--log-format", "json", "--verbose", "--unresponsive-after", "3s"),
        app="noisy:scheduler",
        cwd=tmp_path,
        environment={"PYTHONPATH": str(ROOT)},
    ).wait_ready()
    first = worker.children()[0]
    submitter = Scheduler(url, allow=["noisy"])
    good = submitter.enqueue_by_name("noisy:good").submit()
    bad = submitter.enqueue_by_name("noisy:bad").with_max_retries(1).with_backoff("FIXED", 0.01).submit()
    until(lambda: good.status().is_terminal and bad.status().is_terminal, 30.0, worker.log)
    greedy = scheduler.enqueue(shop.greedy, ledger, "greedy", shop.greedy_length(60.0))
    hung = greedy.with_queue("greedy").submit()
    until(lambda: hung.status() is JobStatus.RUNNING, 20.0, "it was not started")
    scheduler.queues.pause("greedy")  # the next child must not start it again: it would hang there too
    until(lambda: not is_running(first), 20.0, f"it was not killed:\n{worker.log}")
    until(lambda: hung.job().crashes == 1, 20.0, "the crash was not counted")
    hung.cancel()
    worker.signal(signal.SIGTERM)
    worker.wait(30.0)
    submitter.close()
    lines = [json.loads(line) for line in worker.log.splitlines()]
    assert all({"at", "level", "process", "logger", "message"} <= set(line) for line in lines)

    def the(words: str) -> dict[str, str]:
        found = [line for line in lines if words in line["message"]]
        assert len(found) == 1, (words, found)
        return found[0]

    assert any("warned at the import" in line["message"] for line in lines)
    assert the("thread in-trouble ended with an exception")["error_type"] == "ZeroDivisionError"
    success = the("succeeded at attempt 1")
    assert (success["job_id"], success["target"], success["attempt"]) == (str(good.id), "noisy:good", 1)
    retry = the("runs again in")
    assert (retry["job_id"], retry["error_type"], retry["attempt"]) == (str(bad.id), "ValueError", 1)
    dead = the("is a dead letter")
    assert (dead["job_id"], dead["error_type"], dead["attempt"]) == (str(bad.id), "ValueError", 2)
    assert "in bad" in dead["traceback"]
    assert "\n" not in dead["message"]
    assert "in greedy" in the("its threads were here")["traceback"]
    inside = the("said by the job")
    assert (inside["job_id"], inside["target"]) == (str(good.id), "noisy:good")
    assert inside["node"] == inside["node_id"]


NOISY_APP = """
import logging, threading, warnings
from ratchet import Scheduler

warnings.warn("warned at the import")
scheduler = Scheduler(allow=["noisy", "tests.cluster.shop"])

def good():
    logging.getLogger("shop").warning("said by the job")
    trouble = threading.Thread(target=lambda: 1 / 0, name="in-trouble")
    trouble.start()
    trouble.join()

def bad():
    raise ValueError("no luck")
"""
