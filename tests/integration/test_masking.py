"""People see ••• in the place of masked values, on every store; code gets them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ratchet import (
    ConfigurationError,
    InvalidJob,
    JobContext,
    JobDeadLettered,
    JobEvent,
    JobFailed,
    JobStatus,
    ManualClock,
    Scheduler,
)
from ratchet.cli.app import COMMANDS, app_of
from ratchet.model.results import JobError
from ratchet.testing import ManualScheduler
from tests.integration.conftest import Stores
from tests.integration.encryption_samples import SECRET
from tests.integration.test_encryption import keyring

got: list[Any] = []


@dataclass
class Customer:
    name: str
    card: str


def charge(order: int, card: str) -> str:
    got.append((order, card))
    return card


def bill(customer: dict[str, Any], *, note: str = "") -> None:
    JobContext.current().progress(0.5, f"billing {customer['card']}")
    logging.getLogger(__name__).warning("billing %s", customer["card"])
    raise ValueError(f"cannot bill {customer['card']} of {customer['name']}")


def pay(customer: Customer) -> None:
    got.append(customer.card)


def every(*cards: str, **more: str) -> None:
    got.append((*cards, more))


def failed(ctx: JobContext, error: JobError) -> None:
    got.append(str(error))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    got.clear()
    for function in (charge, bill, pay, every):
        vars(function).clear()
    logging.getLogger(__name__).setLevel(logging.INFO)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def scheduler(
    stores: Stores, clock: ManualClock, request: pytest.FixtureRequest
) -> Iterator[ManualScheduler]:
    made = ManualScheduler(store=stores.open(), clock=clock, codec=keyring() if request.param else None)
    yield made
    made.close()


def test_a_parameter_by_name(scheduler: ManualScheduler, stores: Stores, clock: ManualClock) -> None:
    """However it was given: by position, by name, in bulk, as a param; a process without the code masks it too."""
    scheduler.job(masked=["card", "result"])(charge)
    handles = [
        scheduler.enqueue_now(charge, 7, SECRET),
        scheduler.enqueue(charge, 7, card=SECRET)
        .with_param("card", SECRET)
        .with_param("region", "eu")
        .submit(),
        *scheduler.enqueue_many(charge, [(7, SECRET), (8, SECRET)]),
        scheduler.enqueue(lambda: charge(7, SECRET)).submit(),
        *(job for job in [charge.enqueue(7, SECRET).submit()]),  # type: ignore[attr-defined]  # declared above
    ]
    scheduler.drain()
    assert {card for _, card in got} == {SECRET}
    for handle in handles:
        assert handle.result() == SECRET
        job = handle.job()
        assert SECRET in (*job.args, *job.kwargs.values())
        assert job.result == SECRET
        for text in (repr(job), json.dumps(job.to_dict(), ensure_ascii=False)):
            assert SECRET not in text
            assert "•••" in text
    named = handles[1].job()
    assert named.params == {"card": SECRET, "region": "eu"}
    assert named.to_dict()["params"] == {"card": "•••", "region": "eu"}
    other = ManualScheduler(
        store=stores.open(), clock=clock, seed=5, codec=keyring() if scheduler._core.parts.codec else None
    )
    assert other.jobs.get(handles[0].id).to_dict()["args"] == [7, "•••"]
    other.close()


def test_a_path_and_what_messages_say(scheduler: ManualScheduler, caplog: pytest.LogCaptureFixture) -> None:
    """The value is hidden in errors, tracebacks, progress, log lines, our own log and events; the rest of the argument is shown."""
    scheduler.job(masked=["customer.card"])(bill)
    told: list[JobEvent] = []
    scheduler.on(JobFailed, JobDeadLettered)(told.append)
    handle = scheduler.enqueue(bill, {"name": "Ann", "card": SECRET}).on_failure(failed).submit()
    with caplog.at_level(logging.DEBUG, "ratchet"):
        scheduler.drain()
    job = handle.job()
    assert job.args == ({"name": "Ann", "card": SECRET},)
    assert job.to_dict()["args"] == [{"name": "Ann", "card": "•••"}]
    assert job.error == "ValueError: cannot bill ••• of Ann"
    (run,) = scheduler.jobs.executions(handle.id)
    (line,) = scheduler.jobs.logs(handle.id)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("ratchet")]
    for text in (run.error, run.traceback, line.message, str(job.progress), *map(str, told), *ours):
        assert SECRET not in str(text)
    assert line.message == "billing •••"
    assert "•••" in str(run.traceback)
    assert len(told) == 2
    assert got == ["ValueError: cannot bill ••• of Ann"]


def test_inside_objects_lists_and_the_rest(scheduler: ManualScheduler) -> None:
    """Fields of a dataclass, each item of *args, and names that only **kwargs takes."""
    scheduler.job(masked=["customer.card"])(pay)
    scheduler.job(masked=["cards", "pin"])(every)
    one = scheduler.enqueue_now(pay, Customer("Ann", SECRET))
    many = scheduler.enqueue_now(every, SECRET, SECRET, pin=SECRET, name="Ann")
    scheduler.drain()
    assert got == [SECRET, (SECRET, SECRET, {"pin": SECRET, "name": "Ann"})]
    assert SECRET not in str(one.job().to_dict())
    assert "Ann" in str(one.job().to_dict())
    shown = many.job().to_dict()
    assert (shown["args"], shown["kwargs"]) == (["•••", "•••"], {"pin": "•••", "name": "Ann"})


@pytest.mark.parametrize(
    "rule", [["card", "*.card"], lambda target: ["card", "*.card"] if "test_masking" in target else []]
)
def test_a_policy_for_all_targets(stores: Stores, clock: ManualClock, rule: Any) -> None:
    """By name, or anywhere in any argument; also for jobs that were stored before there was a policy."""
    before = ManualScheduler(store=stores.open(), clock=clock)
    old = before.enqueue_now(charge, 7, card=SECRET)
    scheduler = ManualScheduler(store=stores.open(), clock=clock, seed=1, masking=rule)
    handles = [
        scheduler.enqueue_now(charge, 7, SECRET),
        scheduler.enqueue_now(bill, {"deep": [{"card": SECRET}], "name": "Ann", "card": SECRET}),
        scheduler.handle(old.id),
    ]
    scheduler.drain()
    assert got == [(7, SECRET), (7, SECRET)]
    for handle in handles:
        assert SECRET not in str(scheduler.jobs.get(handle.id).to_dict())
        assert SECRET in str((handle.job().args, handle.job().kwargs))
    assert handles[1].job().status is JobStatus.FAILED
    for made in (before, scheduler):
        made.close()


def test_a_policy_that_fails_masks_everything(clock: ManualClock) -> None:
    """Nothing is shown by mistake."""

    def broken(target: str) -> list[str]:
        raise RuntimeError(target)

    scheduler = ManualScheduler(clock=clock, masking=broken)
    handle = scheduler.enqueue_now(charge, 7, SECRET)
    assert handle.job().to_dict()["args"] == ["•••", "•••"]


def test_what_is_refused() -> None:
    """A mask that would hide nothing is an error where it is declared."""
    scheduler = ManualScheduler()
    with pytest.raises(InvalidJob, match="no such parameter"):
        scheduler.job(masked=["kard"])(charge)
    for bad in ("card", [1], [""], ["a..b"], 7):
        with pytest.raises(ConfigurationError):
            scheduler.job(masked=bad)(charge)  # type: ignore[arg-type]  # nonsense
        with pytest.raises(ConfigurationError):
            ManualScheduler(masking=bad)


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_command_line(tmp_path: Path, encrypted: bool) -> None:
    """Every way of looking at a job shows the mask, or says that it is encrypted; never the value."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    scheduler = Scheduler(url, allow=[__name__], codec=keyring() if encrypted else None)
    scheduler.job(masked=["customer.card", "note"])(bill)
    handle = (
        scheduler.enqueue(bill, {"name": "Ann", "card": SECRET}, note=SECRET)
        .with_param("note", SECRET)
        .submit()
    )
    with scheduler:
        assert handle.wait(timeout=30) is JobStatus.FAILED
    scheduler.close()
    app, runner = app_of(COMMANDS), CliRunner()
    shown = ""
    for words in (
        ["jobs", "list"],
        ["jobs", "show", str(handle.id), "--traceback"],
        ["jobs", "logs", str(handle.id)],
        ["jobs", "explain", str(handle.id)],
        ["dlq", "list"],
        ["dlq", "summary"],
        ["dlq", "alerts"],
        ["health"],
    ):
        for form in ([], ["--json"]):
            result = runner.invoke(app, [*words, "--url", url, *form])
            assert result.exit_code in (0, 4), (words, result.output)
            shown += result.output
    assert SECRET not in shown
    if encrypted:
        assert "encrypted with the key 'new'" in shown
        refused = runner.invoke(app, ["jobs", "list", "--url", url, "--error", "bill"])
        assert refused.exit_code != 0
    else:
        assert "•••" in shown
