"""Nodes that lack a key never claim the jobs that need it: not once, whatever kind of job it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ratchet import RESULT, JobFilter, JobStatus, call
from ratchet.scheduler import Scheduler
from tests.cluster import vault
from tests.cluster.conftest import StartWorker
from tests.cluster.earlier import earlier_version, python
from tests.support.store_urls import KINDS, empty_url
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

APP = "tests.cluster.vault:scheduler"
#: Far longer than any hiccup of a busy machine: nobody is to be rescued by accident.
PATIENT = {"RATCHET_HEARTBEAT": "1", "RATCHET_SILENCE": "60"}


def submitted(scheduler: Scheduler) -> set[UUID]:
    """One job of each kind, and some more; the ids of those that are to succeed."""
    enqueue = scheduler.enqueue
    handles: list[Any] = list(scheduler.enqueue_many(vault.echo, [(f"many {n}",) for n in range(20)]))
    chain = enqueue(vault.echo, "first").then(vault.echo, RESULT).submit()
    handles += [
        chain,
        chain.last,
        enqueue(vault.fail_once, "retried").with_max_retries(2).submit(),
        enqueue(vault.later, "left a checkpoint").submit(),
        enqueue(vault.echo, "with a callback").on_success(call(vault.told, "it")).submit(),
        enqueue(vault.echo, "at once").with_param("a", "b").submit(),
        enqueue(vault.echo, "soon").with_delay(1).submit(),
        enqueue(vault.echo, "signaled").await_signal("go").submit(),
        scheduler.enqueue_batch("items").for_each(["x", "y"], vault.echo).then_on_batch_success(vault.echo, "over").submit(),
    ]  # fmt: skip
    enqueue(vault.fail, "fail").on_failure(call(vault.told, "it")).submit()
    scheduler.signal("go", {"by": "ann"})
    return {handle.id for handle in handles if not hasattr(handle, "jobs")}


def nodes_of(scheduler: Scheduler) -> set[str | None]:
    """The nodes that have run anything, also what did not count."""
    jobs = list(scheduler.jobs.find(limit=1000))
    return {run.node_id for job in jobs for run in scheduler.jobs.executions(job.id, all=True)}


def asked_in_vain(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def all_ended(scheduler: Scheduler) -> bool:
    return all(job.status.is_terminal for job in scheduler.jobs.find(limit=1000))


class TestWithoutTheKey:
    def test_no_job_is_claimed(self, url: str, start_worker: StartWorker, tmp_path: Path) -> None:
        """
        Two workers, one with another key and one without any: plain jobs flow, encrypted ones wait, and no value is even asked for.

        `explain` and `health` name the key. A worker that has it runs all of them.
        """
        log = tmp_path / "asked"
        having, plain = vault.made(url, "a"), vault.made(url, "")
        lacking = start_worker(
            "lacking", app=APP, environment={**PATIENT, "VAULT_KEYS": "b", "VAULT_LOG": str(log)}
        )
        bare = start_worker("bare", app=APP, environment={**PATIENT, "VAULT_KEYS": ""})
        for worker in (lacking, bare):
            worker.wait_ready(seconds=60)
        try:
            done = submitted(having)
            waiting = having.jobs.count(JobFilter(statuses=[JobStatus.PENDING]))
            for n in range(30):  # the workers look for work again and again
                assert plain.enqueue_now(vault.echo, f"plain {n}").wait(timeout=60) is JobStatus.SUCCEEDED
            assert having.jobs.count(JobFilter(statuses=[JobStatus.PENDING])) == waiting
            for job in having.jobs.find(JobFilter(statuses=[JobStatus.PENDING]), limit=100):
                codes = {reason.code for reason in having.explain(job.id)}
                assert "no_key" in codes, (job.args, codes)
                assert having.jobs.executions(job.id, all=True) == []
            (problem,) = [one for one in having.health().problems if one.code == "no_key"]
            assert "key a " in problem.text
            assert problem.count >= 20
            assert having.jobs.count(JobFilter(parked=True)) == 0

            keyed = start_worker("having", app=APP, environment={**PATIENT, "VAULT_KEYS": "a"}).wait_ready(
                seconds=60
            )
            until(lambda: all_ended(having), 60, keyed.log)
            assert {having.jobs.get(job_id).status for job_id in done} == {JobStatus.SUCCEEDED}
            assert asked_in_vain(log) == []
            for worker in (lacking, bare):
                assert "parked" not in worker.log
            runs = {
                run.node_id
                for job in having.jobs.find(limit=1000)
                if "plain" not in str(job.args)
                for run in having.jobs.executions(job.id, all=True)
            }
            assert runs <= set(keyed.nodes())
        finally:
            having.close()
            plain.close()

    def test_two_applications_in_one_store(self, url: str, start_worker: StartWorker, tmp_path: Path) -> None:
        """Each has keys of its own, and both serve one queue: neither ever claims a job of the other."""
        logs = {name: tmp_path / f"asked-{name}" for name in "ab"}
        workers = {
            name: start_worker(
                name, app=APP, environment={**PATIENT, "VAULT_KEYS": name, "VAULT_LOG": str(logs[name])}
            )
            for name in "ab"
        }
        schedulers = {name: vault.made(url, name) for name in "ab"}
        try:
            for worker in workers.values():
                worker.wait_ready(seconds=60)
            done = {name: submitted(scheduler) for name, scheduler in schedulers.items()}
            until(lambda: all_ended(schedulers["a"]), 60, "not all have ended")
            for name, scheduler in schedulers.items():
                assert {scheduler.jobs.get(job_id).status for job_id in done[name]} == {JobStatus.SUCCEEDED}
                runs = {
                    run.node_id
                    for job_id in done[name]
                    for run in scheduler.jobs.executions(job_id, all=True)
                }
                assert runs <= set(workers[name].nodes())
                assert asked_in_vain(logs[name]) == []
                assert "parked" not in workers[name].log
        finally:
            for scheduler in schedulers.values():
                scheduler.close()


class TestBeside010:
    @pytest.fixture
    def old(self) -> Iterator[dict[str, str]]:
        """What makes a process run 0.1.0."""
        with earlier_version() as environment:
            yield environment

    @pytest.fixture(params=KINDS)
    def url(self, request: pytest.FixtureRequest, tmp_path: Path, old: dict[str, str]) -> str:
        """A store that 0.1.0 has made."""
        found = empty_url(request.param, request, tmp_path)
        made = python({**old, "RATCHET_URL": found}, "-m", "ratchet", "db", "upgrade")
        assert made.returncode == 0, made.stderr
        return found

    def test_an_old_worker_claims_none(
        self, url: str, old: dict[str, str], start_worker: StartWorker, tmp_path: Path
    ) -> None:
        """It knows nothing of keys, and took an encrypted job for a damaged one before: a place of keys is a target that it lacks."""
        worker = start_worker("old", app=APP, environment={**old, **PATIENT, "VAULT_KEYS": ""}).wait_ready(
            seconds=60
        )
        upgraded = python({"RATCHET_URL": url}, "-m", "ratchet", "db", "upgrade")
        assert upgraded.returncode == 0, upgraded.stderr
        having, plain = vault.made(url, "a"), vault.made(url, "")
        try:
            done = submitted(having)
            for n in range(10):
                assert plain.enqueue_now(vault.echo, f"plain {n}").wait(timeout=60) is JobStatus.SUCCEEDED
            assert nodes_of(having) <= {*worker.nodes()}
            assert {
                run.node_id for job_id in done for run in having.jobs.executions(job_id, all=True)
            } == set()
            keyed = start_worker("having", app=APP, environment={**PATIENT, "VAULT_KEYS": "a"}).wait_ready(
                seconds=60
            )
            until(lambda: all_ended(having), 60, keyed.log)
            assert {having.jobs.get(job_id).status for job_id in done} == {JobStatus.SUCCEEDED}
            assert {
                run.node_id for job_id in done for run in having.jobs.executions(job_id, all=True)
            } == set(keyed.nodes())
            assert [letter.job_id for letter in having.dead_letters.find()] == [
                job.id for job in having.jobs.find(JobFilter(targets=[f"{vault.__name__}:fail"]))
            ]
        finally:
            having.close()
            plain.close()
