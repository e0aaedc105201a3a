"""The target of a move belongs to that move alone: nobody works there or writes to it, and no second call puts rows into it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ratchet import JobFilter, JobStatus, ManualClock, Options, Scheduler, new_id
from ratchet.model.claim import ClaimRequest
from ratchet.model.errors import StoreMoved
from ratchet.model.moves import Fence, MoveOvertaken, MoveRefused, MoveState, RowKind
from ratchet.moving import Progress, give_up, move, moves
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.stores.mongo.store import MongoStore
from ratchet.stores.sql.store import SqlStore
from ratchet.tck.steps import Steps
from tests.moves import samples
from tests.moves.conftest import MakeUrl
from tests.support.store_urls import KINDS

Action = Callable[[], object]


@pytest.fixture
def source(filled: str) -> str:
    """A store with everything in it."""
    return filled


class _Steps(Steps):
    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.now = store.database_time()


def once(monkeypatch: pytest.MonkeyPatch, name: str, when: object, action: Action, *, after: bool) -> None:
    """Do *action* before or after the first call of a store's method whose first argument is *when*."""
    left = [action]

    def patched(plain: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: object, first: object, *args: Any, **given: Any) -> Any:
            due = left.pop() if first is when and left else None
            if due is not None and not after:
                due()
            answer = plain(self, first, *args, **given)
            if due is not None and after:
                due()
            return answer

        return called

    for store in (SqlStore, MongoStore):
        monkeypatch.setattr(store, name, patched(getattr(store, name)))


def scheduler_on(url: str) -> Scheduler:
    made = Scheduler(url, allow=["tests.moves.samples"], options=Options(auto_migrate=True))
    made.migrate()
    return made


def tampering(scheduler: Scheduler) -> dict[str, Action]:
    """What a process that knows the target could do to it."""
    store, now = scheduler.store, scheduler.store.database_time()
    waiting = next(iter(scheduler.jobs.find(JobFilter(tags=["ç"])).items))
    request = ClaimRequest(node_id="node", claim_id=new_id(), limit=1)
    return {
        "submit": lambda: scheduler.enqueue_now(samples.fine, 1),
        "submit many": lambda: scheduler.enqueue_batch("b").for_each([1, 2], samples.fine).submit(),
        "cancel": lambda: scheduler.handle(waiting.id).cancel("not wanted"),
        "claim": lambda: store.claim_next_batch(request, now=now),
        "join": scheduler.start,
        "archive": lambda: scheduler.storage.purge(timedelta(days=30)),
        "signal": lambda: scheduler.signal("order:9", 1),
        "limit": lambda: scheduler.limits.set("more", concurrent=1),
        "pause": lambda: scheduler.queues.pause("default"),
        "schedule": lambda: scheduler.schedule_recurring("0 2 * * *", samples.fine, 1, name="another"),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_else_writes_to_it(
    kind: str, source: str, make_url: MakeUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    While the rows arrive, a process that has had the target open before is refused, whatever it wants to change, and told why; so the
    move comes to its end, and then the same process can work there.
    """
    target = make_url(kind)
    scheduler = scheduler_on(target)
    said: dict[str, str] = {}

    def tamper() -> None:
        for name, change in tampering(scheduler).items():
            try:
                change()
            except StoreMoved as error:
                said[name] = str(error)
            else:
                said[name] = "done"

    once(monkeypatch, "put_rows", RowKind.JOB, tamper, after=True)
    move(source, target)
    wrong = {name: text for name, text in said.items() if "jobs are still arriving from" not in text}
    assert not wrong
    assert len(said) == 10
    found = scheduler.enqueue_now(samples.fine, 1)
    assert scheduler.handle(found.id).cancel("seen")
    scheduler.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_works_there(kind: str, source: str, make_url: MakeUrl) -> None:
    """A node that waits on the empty target is named, and neither side is closed; when it has left, the move goes on."""
    target = make_url(kind)
    scheduler = scheduler_on(target)
    steps = _Steps(scheduler.store)
    steps.register("early")
    for dry in (True, False):
        with pytest.raises(MoveRefused, match=r"nodes work on .* already \(early\)"):
            move(source, target, dry_run=dry)
    for url in (source, target):
        assert not give_up(url), "there is no trace of a move"
    with scheduler_on(source):
        pass
    steps.store.deregister("early", now=steps.now)
    assert move(source, target).jobs
    scheduler.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["node", "job"])
def test_what_comes_before_the_fence(
    kind: str, what: str, source: str, make_url: MakeUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node or a job that comes after the first look, just before the fence, is found behind it; then the target is open as before."""
    target = make_url(kind)
    scheduler = scheduler_on(target)
    steps = _Steps(scheduler.store)
    comes = {"node": lambda: steps.register("quick"), "job": lambda: scheduler.enqueue_now(samples.fine, 1)}
    once(monkeypatch, "fence_off", Fence.FILLING, comes[what], after=False)
    with pytest.raises(MoveRefused, match={"node": "quick", "job": "rows of job"}[what]):
        move(source, target)
    assert scheduler.enqueue_now(samples.fine, 2).cancel()
    for url in (source, target):
        assert not give_up(url)
    scheduler.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_call_of_the_same_move(
    kind: str, source: str, make_url: MakeUrl, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A call stands still before its last portion; a second one ends the move, and the jobs run. Then the first is refused: what has run is
    not put there again, nor a key that has been given back.
    """
    target = make_url(kind)
    rows: list[object] = []

    def end_it() -> None:
        move(source, target)
        store = open_store(target, Options())
        clock.advance(timedelta(hours=6))
        scheduler = samples.scheduler_on(store, clock)
        scheduler.drain()
        clock.advance(timedelta(days=40))
        scheduler.storage.purge(timedelta(days=30))
        scheduler.close()  # which writes down what was counted
        rows.append(samples.rows_of(store))
        store.close()

    for put in (RowKind.BUSINESS_KEY, RowKind.JOB):
        once(monkeypatch, "put_rows", put, lambda: rows or end_it(), after=False)
    samples.ran.clear()
    with pytest.raises(MoveOvertaken):
        move(source, target)
    [before] = rows
    store = open_store(target, Options())
    assert samples.rows_of(store) == before
    scheduler = samples.scheduler_on(store, clock)
    scheduler.drain()
    assert len(samples.ran) == len(set(samples.ran)) > 10
    assert move(source, target).tallies == {}, "it has ended"
    scheduler.close()
    store.close()


@pytest.mark.parametrize("moment", ["fence", "last portion", "compare"])
def test_a_call_that_is_overtaken(
    moment: str, source: str, make_url: MakeUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever a second call ends the move, the first one stops, and the target is open."""
    target, ended = make_url("sqlite"), []

    def end_it() -> None:
        if not ended:
            ended.append(True)
            move(source, target)

    if moment == "fence":
        once(monkeypatch, "fence_off", Fence.FILLING, end_it, after=False)
    elif moment == "last portion":
        once(monkeypatch, "put_rows", RowKind.JOB, end_it, after=True)
    else:
        plain = moves.tallies_of

        def compares(*args: Any) -> Any:
            end_it()
            return plain(*args)

        monkeypatch.setattr(moves, "tallies_of", compares)
    with pytest.raises(MoveOvertaken):
        move(source, target)
    assert ended
    scheduler = scheduler_on(target)
    assert scheduler.enqueue_now(samples.fine, 1).cancel()
    with scheduler:
        pass
    scheduler.close()


@pytest.mark.parametrize("kind", KINDS)
def test_another_move(
    kind: str, source: str, make_url: MakeUrl, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a store is filled from one source, another source and a file are refused there, and so is another target of the source; all stay as they were."""
    target, other, third = make_url(kind), make_url("sqlite"), make_url("sqlite")
    there = open_store(other, Options())
    job = samples.scheduler_on(there, clock).enqueue_now(samples.fine, 1)
    refused: list[str] = []

    def others() -> None:
        for one, two in ((other, target), (source, third), (target, third)):
            with pytest.raises(MoveRefused) as error:
                move(one, two)
            refused.append(str(error.value))

    once(monkeypatch, "put_rows", RowKind.LOG, others, after=False)
    assert move(source, target).jobs
    expected = ("holds a part of what is being moved", "are being moved to", "is itself being filled")
    assert [text for text, part in zip(refused, expected, strict=True) if part not in text] == []
    samples.scheduler_on(there, clock).drain()
    assert job.status().is_terminal
    there.close()


def test_a_source_that_was_given_up_meanwhile(
    source: str, make_url: MakeUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--give-up` beside a move that is just closing the source: it stays open, and the move stops."""
    target = make_url("sqlite")
    once(monkeypatch, "fence_off", Fence.WRITES, lambda: give_up(source), after=False)
    with pytest.raises(MoveRefused):
        move(source, target)
    scheduler = scheduler_on(source)
    assert scheduler.enqueue_now(samples.fine, 1).cancel()
    scheduler.close()
    store = open_store(target, Options())
    assert isinstance(store, SqlStore)
    record = store.move_record()
    assert record is not None
    assert record.state is MoveState.FILLING
    store.close()


def test_given_up_while_it_waits_for_runs(source: str, make_url: MakeUrl) -> None:
    """`--give-up` beside a move that waits, and would take running jobs from their nodes: they keep them, and the move stops."""
    store = open_store(source, Options())
    steps = _Steps(store)
    steps.register("works")
    samples.scheduler_on(store, ManualClock(steps.now)).enqueue(samples.fine, 1).with_queue("own").submit()
    [claim] = steps.claim(1, node_id="works", queues=("own",))
    looks = 0

    def given_up(progress: Progress) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            assert give_up(source)

    with pytest.raises(MoveOvertaken):
        move(source, make_url("sqlite"), wait=0.3, hand_back=True, on_progress=given_up)
    assert looks == 1
    record = store.get(claim.job_id)
    assert record is not None
    assert record.status is JobStatus.RUNNING
    store.close()
