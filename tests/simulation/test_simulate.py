"""`ratchet.testing.simulate`: what it finds in jobs of users, what it leaves alone, and that a seed plays the same life again."""

from __future__ import annotations

import logging
import random
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import RESULTS, BackoffPolicy, JobContext, Scheduler
from ratchet.model.errors import RatchetError
from ratchet.testing import Simulation, SimulationFailed, SimulationReport, simulate
from tests.docs.test_examples import ROOT, code_of

shop = Scheduler("sqlite:///:memory:")


class Bank:
    """Charges once for each key, and each time without one."""

    def __init__(self) -> None:
        self.charges: list[str] = []

    def charge(self, key: str = "") -> None:
        if not key or key not in self.charges:
            self.charges.append(key)

    async def charge_async(self, key: str = "") -> None:
        self.charge(key)


bank: Any = Bank()
mails: list[str] = []
send: Any = mails.append


@shop.job(max_retries=3, backoff=BackoffPolicy.FIXED, backoff_base=timedelta(hours=1))
def charge_carelessly(order: int) -> None:
    bank.charge()


@shop.job(max_retries=3)
def charge_with_checkpoint(order: int) -> None:
    context = JobContext.current()
    if not context.state.get("charged"):
        bank.charge()
        context.state["charged"] = True
        context.save()


@shop.job(max_retries=3)
def charge_by_key(order: int) -> None:
    bank.charge(str(JobContext.current().job_id))


@shop.job(max_retries=3)
async def charge_awaited(order: int) -> None:
    await bank.charge_async(str(JobContext.current().job_id))


@shop.job(max_retries=3)
async def charge_awaited_carelessly(order: int) -> None:
    await bank.charge_async()


@shop.job(max_retries=3)
def submit_and_charge(order: int) -> None:
    """A job of a job: the submission is an effect, too."""
    charge_by_key.enqueue(order).with_idempotency_key(f"order-{order}").submit()


@shop.job(max_retries=3)
def submit_carelessly(order: int) -> None:
    charge_by_key.enqueue(order).submit()


@shop.job
def charge_without_retries(order: int) -> None:
    bank.charge(str(JobContext.current().job_id))


@shop.job(max_retries=3)
def note(name: str) -> str:
    send(name)
    return name


@shop.job(max_retries=3)
def gather(names: list[str]) -> None:
    send(",".join(sorted(names)))


def an_order(job: Any) -> Any:
    """A workflow: one order is paid, and paid once."""

    def workflow(simulation: Simulation) -> None:
        global bank
        real = Bank()
        bank = simulation.effects(real)
        simulation.always("paid once", lambda: len(real.charges) <= 1)
        simulation.at_the_end("paid", lambda: len(real.charges) == 1)
        job.enqueue(42).submit()

    return workflow


def play(job: Any, seeds: int = 40) -> SimulationReport:
    """Simulate one order."""
    return simulate(an_order(job), seeds=seeds, scheduler=shop)


class TestFinds:
    @pytest.mark.parametrize(
        "job", [charge_carelessly, charge_with_checkpoint, charge_awaited_carelessly, submit_carelessly]
    )
    def test_what_happens_twice(self, job: Any) -> None:
        """An effect that is repeated after a crash, a lost answer or a slow step, also behind a checkpoint or in a job of the job."""
        with pytest.raises(SimulationFailed, match="paid once"):
            play(job, seeds=300)

    def test_what_never_happens(self) -> None:
        """A job without retries that loses its connection: the order is not paid."""
        with pytest.raises(SimulationFailed, match=r"seed \d+: paid\n"):
            play(charge_without_retries)

    def test_a_job_that_waits_for_ever(self) -> None:
        """Nobody sends the signal: it is named, and so is what it waits for."""

        def workflow(simulation: Simulation) -> None:
            note.enqueue("shipped").await_signal("approved").submit()

        with pytest.raises(
            SimulationFailed,
            match=r"note\('shipped'\) never ended: it is WAITING, because it waits for .*approved",
        ):
            simulate(workflow, seeds=1, scheduler=shop)

    def test_an_invariant_that_raises(self) -> None:
        """Its error is told with its words."""

        def workflow(simulation: Simulation) -> None:
            simulation.at_the_end("adds up", lambda: 1 / 0)

        with pytest.raises(SimulationFailed, match="adds up: ZeroDivisionError: division by zero"):
            simulate(workflow, seeds=1)


class TestPasses:
    @pytest.mark.parametrize("job", [charge_by_key, charge_awaited, submit_and_charge])
    def test_what_is_idempotent(self, job: Any) -> None:
        """With a key nothing happens twice or never, whatever is played; and all kinds of faults were."""
        report = play(job)
        assert report.seeds == 40
        assert report.runs > 40
        assert report.crashes > 0
        assert report.losses > 0

    def test_graphs_and_batches(self) -> None:
        """A join and a batch come to their end with everything that they promise, although nodes die in the middle."""

        def workflow(simulation: Simulation) -> None:
            global send
            sent: set[str] = set()
            send = simulation.effects(sent.add, "send")
            shop.join([note.enqueue("a"), note.enqueue("b")]).then(gather, RESULTS).submit()
            shop.enqueue_batch("letters").for_each(["x", "y", "z"], note).then_on_batch_success(
                note, "done"
            ).submit()
            simulation.always("the sum comes last", lambda: "a,b" not in sent or {"a", "b"} <= sent)
            simulation.always("done is the last", lambda: "done" not in sent or {"x", "y", "z"} <= sent)
            simulation.at_the_end("all of it", lambda: sent == {"a", "b", "a,b", "x", "y", "z", "done"})

        report = simulate(workflow, seeds=20, scheduler=shop)
        assert report.crashes + report.slow_steps > 10

    def test_long_delays_take_no_time(self) -> None:
        """A retry after an hour and a job in a month are played at once."""

        def workflow(simulation: Simulation) -> None:
            simulation.scheduler.schedule(timedelta(days=30), note, "later").submit()

        assert simulate(workflow, seeds=3, scheduler=shop).runs >= 3

    def test_a_scheduler_of_its_own(self) -> None:
        """Without one of the application, the simulation brings it."""

        def workflow(simulation: Simulation) -> None:
            global send
            sent: list[str] = []
            send = simulation.effects(sent.append, "send")
            simulation.scheduler.enqueue(note, "hello").submit()
            simulation.at_the_end("sent", lambda: "hello" in sent)

        assert simulate(workflow, seeds=10).runs >= 10


class TestReplay:
    def failing(self, **how: Any) -> SimulationFailed:
        with pytest.raises(SimulationFailed) as caught:
            simulate(an_order(charge_carelessly), scheduler=shop, **how)
        return caught.value

    def test_a_seed_plays_the_same_life(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By the parameter and by the environment, line for line; the message says how."""
        first = self.failing()
        assert f"simulate(workflow, seed={first.seed})" in str(first)
        assert "did bank.charge()" in first.story[-1]
        again = self.failing(seed=first.seed)
        assert (again.seed, again.what, again.story) == (first.seed, "paid once", first.story)
        monkeypatch.setenv("RATCHET_SIMULATE_SEED", str(first.seed))
        assert self.failing().story == first.story

    def test_nothing_is_left_behind(self) -> None:
        """Python's random numbers, the level of the log and the scheduler are as they were."""
        random.seed(5)
        before = random.getstate()
        self.failing()
        assert random.getstate() == before
        assert logging.getLogger("ratchet").level == logging.NOTSET
        assert not hasattr(shop._core, "_worlds")

    @pytest.mark.parametrize(
        ("given", "message"), [((None,), "takes a function"), ((print, 0), "at least one seed")]
    )
    def test_nonsense_is_refused(self, given: Any, message: str) -> None:
        """With what it takes."""
        with pytest.raises(RatchetError, match=message):
            simulate(*given)


def test_the_page_shows_what_its_example_prints(tmp_path: Path) -> None:
    """The story of the docs has the form of a real one, and the planted bug is found in the first few lives."""
    page = Path("docs/how-to/simulate.md")
    (shown,) = re.findall(r"```text\n(seed .*?)```", (ROOT / page).read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(
        code_of(page).split(
            "@shop.job(max_retries=5, backoff=BackoffPolicy.FIXED, backoff_base=timedelta(seconds=10))\ndef mended"
        )[0]
    )
    ran = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert ran.returncode == 0, ran.stderr
    line = r" +\d+\.\d\d s  node \d+ (starts|did|dies|is slow|goes on|stores|loses|may not store) .+\n"
    form = rf"seed \d\d?: no customer pays twice\n\nwhat happened:\n(?:{line})+\nplay it again: simulate\(an_order, seed=\d+\), or set RATCHET_SIMULATE_SEED=\d+\n"
    assert re.fullmatch(form, ran.stdout), ran.stdout
    assert re.fullmatch(form, shown)
