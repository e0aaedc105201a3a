"""Stored values that were moved, cut, replaced or made up: never plain text, never a crash, one dead letter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from ratchet import RESULT, JobStatus, ManualClock, call
from ratchet.contrib.encryption import Keyring
from ratchet.model.errors import MissingKey, UnreadablePayload
from ratchet.model.payload.envelope import envelope
from ratchet.model.stored_values import Place, ValueChange, ValueRow
from ratchet.testing import ManualScheduler
from tests.integration import encryption_samples as samples
from tests.integration.conftest import Stores
from tests.integration.encryption_samples import SECRET
from tests.integration.test_encryption import NEW, OTHER, keyring, live


@pytest.fixture(autouse=True)
def _fresh() -> None:
    samples.got.clear()


@pytest.fixture
def scheduler(stores: Stores, clock: ManualClock) -> Iterator[ManualScheduler]:
    made = ManualScheduler(store=stores.open(), clock=clock, codec=keyring())
    yield made
    made.close()


def rows(scheduler: ManualScheduler, place: Place) -> dict[Any, ValueRow]:
    store: Any = scheduler.store
    return {row.facts.get("job_id", row.key): row for row in store.inner.value_rows(place, limit=1000)}


def write(scheduler: ManualScheduler, place: Place, row: ValueRow, **texts: str) -> None:
    """Put these texts there, past the codec."""
    store: Any = scheduler.store
    before = {field: row.texts[field] for field in texts}
    assert store.inner.swap_values(place, [ValueChange(key=row.key, before=before, after=texts)]) == 1


def damaged(text: str) -> str:
    """One bit of the data is another one."""
    at = text.index('"v":"') + 20
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


TAMPERINGS: dict[str, Callable[[dict[str, str], dict[str, str]], dict[str, str]]] = {
    "from another row": lambda mine, other: {"payload": other["payload"]},
    "from another field": lambda mine, other: {"payload": mine["params"]},
    "changed": lambda mine, other: {"payload": damaged(mine["payload"])},
    "truncated": lambda mine, other: {"payload": mine["payload"][:-12] + '"}'},
    "cut off": lambda mine, other: {"payload": mine["payload"][:40]},
    "no data": lambda mine, other: {"payload": '{"$":"sealed","k":"new","v":""}'},
    "no envelope": lambda mine, other: {"payload": '{"$":"sealed","k":"new"}'},
    "another known key": lambda mine, other: {"payload": mine["payload"].replace('"new"', '"old"')},
    "a key id of another form": lambda mine, other: {"payload": mine["payload"].replace('"new"', '"../x y"')},
    "made up": lambda mine, other: {"payload": envelope("new", b"x" * 60)},
    "params": lambda mine, other: {"params": other["params"]},
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_it_is_a_dead_letter_and_the_others_run(scheduler: ManualScheduler, how: str) -> None:
    """Reason `unreadable`, after one attempt, with no value in its error; the job beside it runs, and no page is spoiled."""
    first, second = (
        scheduler.enqueue(samples.take, SECRET).with_param("card", SECRET).with_max_retries(3).submit()
        for _ in range(2)
    )
    held = rows(scheduler, Place.JOBS)
    write(
        scheduler, Place.JOBS, held[first.id], **TAMPERINGS[how](held[first.id].texts, held[second.id].texts)
    )
    shown = {job.id: job for job in scheduler.jobs.find()}
    assert set(shown[first.id].unreadable) in ({"payload"}, {"params"})
    assert shown[second.id].args == (SECRET,)

    scheduler.drain()
    assert samples.got == [("take", SECRET)]
    assert second.result() == SECRET
    (letter,) = scheduler.dead_letters.find()
    assert (letter.job_id, letter.reason, letter.attempts) == (first.id, "unreadable", 1)
    assert SECRET not in str(letter)
    shown = {job.id: job for job in scheduler.jobs.find()}
    assert shown[first.id].status is JobStatus.FAILED
    assert SECRET not in str(shown[first.id].to_dict() | {"params": None}) or how == "params"
    assert {reason.code for reason in scheduler.explain(first.id)} == {"failed", "unreadable"}


def test_an_unknown_key_waits(scheduler: ManualScheduler) -> None:
    """It may be another node's: the job is parked, and the listing names the key."""
    handle = scheduler.enqueue_now(samples.take, SECRET)
    row = rows(scheduler, Place.JOBS)[handle.id]
    write(scheduler, Place.JOBS, row, payload=row.texts["payload"].replace('"new"', '"2031"'))
    assert "'2031'" in scheduler.jobs.get(handle.id).unreadable["payload"]
    scheduler.drain()
    assert [reason.code for reason in scheduler.explain(handle.id)] == ["no_key"]
    assert list(scheduler.dead_letters.find()) == []


def test_a_damaged_result(scheduler: ManualScheduler) -> None:
    """`result()` raises, the step that takes it is a dead letter, and the listing says which value it is."""
    alone = scheduler.enqueue_now(samples.take, SECRET)
    scheduler.drain()
    chain = scheduler.enqueue(samples.take, SECRET).then(samples.take, RESULT).submit()
    scheduler.drain(1)
    for handle in (chain, alone):
        row = rows(scheduler, Place.JOBS)[handle.id]
        write(scheduler, Place.JOBS, row, result=damaged(row.texts["result"]))
    with pytest.raises(UnreadablePayload, match="does not decrypt"):
        alone.result()
    assert "result" in alone.job().unreadable
    scheduler.drain()
    (letter,) = scheduler.dead_letters.find()
    assert (letter.job_id, letter.reason) == (chain.last.id, "unreadable")


def test_a_missing_key_of_a_result(stores: Stores, clock: ManualClock, scheduler: ManualScheduler) -> None:
    """Who lacks the key is told which one it is; with no codec at all, too."""
    handle = scheduler.enqueue_now(samples.take, SECRET)
    scheduler.drain()
    for codec in (Keyring(active="x", keys={"x": OTHER}), None):
        reader = ManualScheduler(store=stores.open(), clock=clock, seed=9, codec=codec)
        with pytest.raises(MissingKey, match="'new'"):
            reader.handle(handle.id).result()
        assert SECRET not in str(reader.jobs.get(handle.id))
        reader.close()


def test_texts_for_people_say_that_they_are_unreadable(scheduler: ManualScheduler) -> None:
    """Errors, tracebacks, progress, log lines and alerts: the rest of the page is shown."""
    failed = scheduler.enqueue_now(samples.fail, SECRET)
    said = scheduler.enqueue_now(samples.say, SECRET)
    scheduler.drain()
    for place, field in (
        (Place.JOBS, "error"),
        (Place.RUNS, "error"),
        (Place.RUNS, "traceback"),
        (Place.ALERTS, "error"),
    ):
        row = rows(scheduler, place)[failed.id]
        write(scheduler, place, row, **{field: damaged(row.texts[field])})
    line = rows(scheduler, Place.LOGS)[said.id]
    write(scheduler, Place.LOGS, line, message=damaged(line.texts["message"]))
    row = rows(scheduler, Place.JOBS)[said.id]
    write(scheduler, Place.JOBS, row, progress=damaged(row.texts["progress"]))

    (run,) = scheduler.jobs.executions(failed.id)
    (letter,) = scheduler.dead_letters.find()
    progress = said.job().progress
    assert progress is not None
    for text in (
        failed.job().error,
        run.error,
        run.traceback,
        letter.error,
        letter.alerts[0].error,
        scheduler.jobs.logs(said.id)[0].message,
        progress.message,
        scheduler.dead_letters.summary()[0].message,
    ):
        assert text is not None
        assert text.startswith("(unreadable: it does not decrypt"), text
    assert said.result() == SECRET


def test_a_damaged_state_and_signal(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """What the job would look at while it runs is opened before it starts."""
    later = scheduler.enqueue_now(samples.later, SECRET)
    waiting = scheduler.enqueue(samples.signaled).await_signal("go").with_delay(timedelta(hours=1)).submit()
    scheduler.signal("go", {"by": SECRET})
    scheduler.drain()
    for handle, field in ((later, "state"), (waiting, "signal")):
        row = rows(scheduler, Place.JOBS)[handle.id]
        text = row.texts[field]
        at = text.index("sealed") + 45
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        write(scheduler, Place.JOBS, row, **{field: changed})
    samples.got.clear()
    clock.advance(timedelta(hours=2))
    scheduler.drain()
    assert {letter.job_id for letter in scheduler.dead_letters.find()} == {later.id, waiting.id}
    assert {letter.reason for letter in scheduler.dead_letters.find()} == {"unreadable"}
    assert samples.got == []


def test_a_damaged_schedule_fires_nothing(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """It is passed by; the other schedules fire."""
    for name in ("bad", "good"):
        scheduler.schedule_recurring("0 * * * *", call(samples.take, name), name=name)
    row = {
        row.key if isinstance(row.key, str) else row.key[0]: row
        for row in rows(scheduler, Place.SCHEDULES).values()
    }["bad"]
    template = row.texts["template"]
    at = template.index("sealed") + 45
    changed = template[:at] + ("A" if template[at] != "A" else "B") + template[at + 1 :]
    write(scheduler, Place.SCHEDULES, row, template=changed)
    assert len(scheduler.schedules.list()) == 2
    clock.advance(timedelta(hours=1))
    scheduler.drain()
    assert samples.got == [("take", "good")]


@pytest.mark.parametrize("stores", ["memory", "sqlite"], indirect=True)
def test_fuzzed(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """Hundreds of random changes of stored texts: every read and every run goes on, and no secret comes out of a changed value."""
    dice = random.Random(20261118)
    live(scheduler, clock)
    for _ in range(150):
        scheduler.enqueue(samples.take, SECRET).with_param("card", SECRET).submit()
    store: Any = scheduler.store
    changed = 0
    for place in Place:
        for row in store.inner.value_rows(place, limit=1000):
            if dice.random() < 0.3:
                continue
            field = dice.choice(list(row.texts)) if row.texts else None
            if field is None:
                continue
            write(scheduler, place, row, **{field: _mutated(row.texts[field], dice)})
            changed += 1
    assert changed > 100
    clock.advance(timedelta(hours=1))
    scheduler.drain()
    for job in scheduler.jobs.find(limit=1000):
        scheduler.jobs.executions(job.id, all=True)
        scheduler.jobs.logs(job.id)
        job.to_dict()
    list(scheduler.dead_letters.find(limit=1000))
    scheduler.dead_letters.summary()
    scheduler.health()
    assert scheduler.jobs.counts()[JobStatus.RUNNING] == 0


def _mutated(text: str, dice: random.Random) -> str:
    at = dice.randrange(len(text))
    match dice.randrange(5):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + dice.choice('"{}[]\\x:,0aA=') + text[at + 1 :]
        case 2:
            return text[:at] + text[at:] * 2
        case 3:
            return text[at:] + text[:at]
    return "".join(dice.sample(text, len(text)))


def test_a_key_of_32_other_bytes_opens_nothing(
    stores: Stores, clock: ManualClock, scheduler: ManualScheduler
) -> None:
    """The right id with the wrong key: unreadable, not garbage."""
    handle = scheduler.enqueue_now(samples.take, SECRET)
    wrong = ManualScheduler(
        store=stores.open(),
        clock=clock,
        seed=9,
        codec=Keyring(active="new", keys={"new": bytes(NEW[:31]) + b"?"}),
    )
    wrong.drain()
    assert handle.job().status is JobStatus.FAILED
    assert samples.got == []
    wrong.close()
