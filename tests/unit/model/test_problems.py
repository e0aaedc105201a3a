"""What a health check says of what it has read: when something is wrong, and when it only looks like it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ratchet.model.cluster import BreakerRecord, LimitRecord, NodeInfo, NodeRecord, NodeState
from ratchet.model.composition import ScheduleRecord, ScheduleSpec
from ratchet.model.job import StreamKey
from ratchet.model.load import COUNTED, Load, StreamLoad
from ratchet.model.places import key_place
from ratchet.model.problems import Problem, Situation, Stuck, counted, diagnose
from ratchet.model.status import Lane

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(minutes=10)
LANES = {"thread": 4, "async": 10, "process": 2}


def node(
    name: str = "n1", state: NodeState = NodeState.ACTIVE, *, beat: float = 1, **more: Any
) -> NodeRecord:
    died = {"rescued_at": NOW - timedelta(seconds=beat)} if state is NodeState.DEAD else {}
    return NodeRecord(
        node_id=name,
        name=name,
        host="h",
        pid=1,
        version="1",
        state=state,
        beat=1,
        beat_interval=timedelta(seconds=2),
        silence=timedelta(seconds=10),
        started_at=LONG_AGO,
        last_beat_at=NOW - timedelta(seconds=beat),
        info=msgspec.json.encode(NodeInfo(**{"lanes": LANES, **more})).decode(),
        **died,
    )


def stream(
    due: int = 1,
    since: datetime = LONG_AGO,
    claimed_at: datetime | None = None,
    **key: Any,
) -> StreamLoad:
    running = 0 if claimed_at is None else 1
    return StreamLoad(
        stream_id=1, key=StreamKey(**key), due=due, first_at=since, running=running, claimed_at=claimed_at
    )


def found(*streams: StreamLoad, asked: dict[str, Any] | None = None, **situation: Any) -> list[Problem]:
    """The problems of one node, unless others are given, with these streams."""
    load = Load(streams=streams, pending=sum(one.due for one in streams))
    at = Situation(**{"now": NOW, "load": load, "nodes": [node()], **situation})
    return diagnose(at, **(asked or {}))[0]


def codes(*streams: StreamLoad, **situation: Any) -> list[str]:
    return [problem.code for problem in found(*streams, **situation)]


def waits(*streams: StreamLoad, **situation: Any) -> list[str]:
    load = Load(streams=streams, pending=sum(one.due for one in streams))
    at = Situation(**{"now": NOW, "load": load, "nodes": [node()], **situation})
    return [one.code for one in diagnose(at)[1]]


class TestNodes:
    def test_nobody_there(self) -> None:
        """No node that takes jobs is a problem, unless none is asked for and nothing waits; the due jobs are counted."""
        assert codes(nodes=[]) == ["no_nodes"]
        assert codes(nodes=[], asked={"min_nodes": 0}) == []
        (problem,) = found(stream(due=3), nodes=[], asked={"min_nodes": 0})
        assert (problem.code, problem.count, problem.since) == ("no_nodes", 3, LONG_AGO)
        assert codes(nodes=[node(state=NodeState.DRAINING)]) == ["no_nodes"]

    def test_fewer_than_expected(self) -> None:
        """Draining nodes do not count."""
        two = [node("a"), node("b"), node("c", NodeState.DRAINING)]
        assert codes(nodes=two, asked={"min_nodes": 2}) == []
        assert codes(nodes=two, asked={"min_nodes": 3}) == ["no_nodes"]

    def test_silent_ones(self) -> None:
        """A node without a beat for twice its silence that nobody has declared dead is a problem; a dead one is not."""
        assert codes(nodes=[node("a"), node("b", beat=19)]) == []
        (problem,) = found(nodes=[node("a"), node("b", beat=30)])
        assert (problem.code, problem.count) == ("silent_nodes", 1)
        assert "b" in problem.text
        assert codes(nodes=[node("a"), node("b", NodeState.DEAD, beat=30)]) == []

    def test_nodes_that_die_one_after_the_other(self) -> None:
        """Three deaths within five minutes, although a node is alive each time one looks: something kills them."""
        dead = [node(f"d{number}", NodeState.DEAD, beat=60 * number) for number in (1, 2, 4, 9)]
        assert codes(nodes=[node(), *dead[:2], dead[3]]) == []
        (problem,) = found(nodes=[node(), *dead])
        assert (problem.code, problem.count) == ("silent_nodes", 3)

    def test_a_lane_that_is_down(self) -> None:
        """A node that beats but runs nothing is named with the fault, also while nothing waits."""
        (problem,) = found(nodes=[node(down={"async": "its event loop has ended"})])
        assert problem.code == "lane_down"
        assert "async" in problem.text
        assert "its event loop has ended" in problem.text
        down = node(down={"async": "x"})
        assert codes(stream(lane=Lane.ASYNC), nodes=[down]) == ["lane_down", "lane_down"]


class TestClosed:
    def test_a_queue_that_opens_by_itself_is_in_order(self) -> None:
        """A pause with a time is intended: it is told, and is no problem, however long its jobs wait; `max_wait` still counts."""
        at = {"reopens": {"q": NOW + timedelta(hours=1)}}
        assert codes(stream(queue="q", since=LONG_AGO), **at) == []

    def test_each_is_named(self) -> None:
        """A paused queue, an open breaker, a target that no node has, a queue that no node serves."""
        at = {"paused": {"q": LONG_AGO}, "breakers": [BreakerRecord(service="bank", state="OPEN")]}
        assert codes(stream(queue="q"), **at) == ["paused_queue"]
        assert codes(stream(breaker="bank"), **at) == ["open_breaker"]
        assert codes(stream(parked_target="a:b")) == ["parked"]
        assert codes(stream(queue="q"), nodes=[node(queues=["other"])]) == ["no_node_for_queue"]
        (problem,) = found(stream(due=2, queue="q", since=NOW), **at)
        assert (problem.count, problem.since) == (2, LONG_AGO)

    def test_nothing_due_behind_it(self) -> None:
        """Closing something is no problem while nothing waits behind it."""
        at = {"paused": {"q": LONG_AGO}, "breakers": [BreakerRecord(service="bank", state="OPEN")]}
        idle = stream(due=0, since=NOW + timedelta(hours=1), queue="q", breaker="bank")
        assert codes(idle, **at) == []
        assert waits(idle, **at) == ["not_due"]

    def test_what_opens_by_itself_is_open(self) -> None:
        """A breaker whose time has come, a parked target that a node knows: their jobs flow."""
        over = BreakerRecord(service="bank", state="OPEN", until=NOW - timedelta(seconds=1))
        assert codes(stream(breaker="bank", since=NOW), breakers=[over]) == []
        knows = node(targets=["a:b"])
        assert codes(stream(parked_target="a:b", since=NOW), nodes=[knows]) == []

    def test_a_missing_key(self) -> None:
        """Jobs that wait for keys flow where one node has all of them; otherwise it is a problem that names them."""
        waits_for = stream(parked_target=key_place(["old", "new"]), since=NOW)
        (problem,) = found(waits_for, nodes=[node(keys=["old"]), node(keys=["new"])])
        assert problem.code == "no_key"
        assert "new, old" in problem.text
        assert codes(waits_for, nodes=[node(keys=["old", "new", "next"])]) == []


class TestOverdue:
    def test_longer_than_allowed(self) -> None:
        """Whatever the reason, and also if others start meanwhile; it says why."""
        flows = stream(claimed_at=NOW)
        assert codes(flows) == []
        limits = {"max_wait": timedelta(minutes=9)}
        (problem,) = found(flows, asked=limits)
        assert (problem.code, problem.since) == ("overdue", LONG_AGO)
        assert codes(flows, asked={"max_wait": timedelta(minutes=11)}) == []
        full = {"gateway": LimitRecord(name="gateway", concurrent=1, held=1)}
        assert codes(stream(resource="gateway"), asked=limits) == ["overdue"]
        held = Situation(
            now=NOW, nodes=[node()], load=Load(streams=(stream(resource="gateway"),)), limits=full
        )
        (problem,) = diagnose(held, max_wait=timedelta(minutes=9))[0]
        assert "'gateway'" in problem.text

    def test_nothing_starts(self) -> None:
        """Jobs that nothing holds back have waited for a minute, and none of their queue and lane was claimed: a problem."""
        assert codes(stream()) == ["overdue"]
        assert codes(stream(since=NOW - timedelta(seconds=50))) == []
        others = stream(due=0, since=NOW, claimed_at=NOW, lane=Lane.ASYNC)
        assert codes(stream(), others) == ["overdue"]
        same = stream(due=0, since=NOW, claimed_at=NOW - timedelta(seconds=30), fairness_key="ann")
        assert codes(stream(), same) == []

    def test_slots_that_stay_taken(self) -> None:
        """Full slots are in order while jobs come and go; when nothing starts for a minute, they are a problem."""
        full = [node(full={"thread": LONG_AGO})]
        assert codes(stream(claimed_at=NOW), nodes=full) == []
        assert waits(stream(claimed_at=NOW), nodes=full) == ["slots_full"]
        (problem,) = found(stream(), nodes=full)
        assert problem.code == "overdue"
        assert "slots for thread jobs" in problem.text
        assert waits(stream(claimed_at=NOW), nodes=[*full, node("n2")]) == ["flowing"]

    def test_limits_hold_by_design(self) -> None:
        """A wait for a permit or a rate is in order, unless the permit is held by what will not give it back."""
        key = {"resource": "gateway"}
        full = {"gateway": LimitRecord(name="gateway", concurrent=1, held=1)}
        rate = {"gateway": LimitRecord(name="gateway", rate=1, period=timedelta(hours=1))}
        load = Load(streams=(stream(**key),))
        for limits, code in ((full, "no_permit"), (rate, "rate_limited")):
            problems, waiting = diagnose(Situation(now=NOW, nodes=[node()], load=load, limits=limits))
            assert (problems, [one.code for one in waiting]) == ([], [code])
        stuck = [Stuck("gateway", "job 7, which is CANCELED, but code of it still runs")]
        (problem,) = diagnose(Situation(now=NOW, nodes=[node()], load=load, limits=full, stuck=stuck))[0]
        assert problem.code == "overdue"
        assert "job 7" in problem.text


class TestOthers:
    def test_dead_letters(self) -> None:
        """More than the caller allows; none are counted by default."""
        load = Load(dead_letters=3, dead_letters_since=LONG_AGO)
        at = Situation(now=NOW, nodes=[node()], load=load)
        assert diagnose(at)[0] == []
        assert diagnose(at, max_dead_letters=3)[0] == []
        (problem,) = diagnose(at, max_dead_letters=2)[0]
        assert (problem.code, problem.count, problem.since) == ("dead_letters", 3, LONG_AGO)

    def test_late_schedules(self) -> None:
        """They are named."""
        spec = msgspec.structs.replace(SPEC, name="nightly")
        late = ScheduleRecord(
            spec=spec, paused=False, next_fire_at=LONG_AGO, last_fire_at=None, created_at=NOW, updated_at=NOW
        )
        (problem,) = found(late=[late])
        assert (problem.code, problem.since) == ("late_schedule", LONG_AGO)
        assert "'nightly'" in problem.text

    def test_jobs_that_somebody_drains(self) -> None:
        """Where jobs run by hand, no node has to be alive, but what is closed is still named."""
        assert codes(nodes=[], by_hand=True) == []
        assert codes(stream(queue="q"), nodes=[], by_hand=True, paused={"q": None}) == ["paused_queue"]

    def test_counts_in_words(self) -> None:
        """Where counting ended, it says that there may be more."""
        assert (counted(1, "job"), counted(2, "job")) == ("1 job is", "2 jobs are")
        assert counted(COUNTED, "job") == "10000 or more jobs are"


SPEC = ScheduleSpec(name="x", expression="* * * * *", zone="UTC", target="a:b", template="{}")
