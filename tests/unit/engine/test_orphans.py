"""Dead is noticed in seconds, alive is never robbed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from ratchet.engine.heartbeat import Heartbeat
from ratchet.engine.identity import NodeIdentity
from ratchet.engine.orphans import OrphanRecovery
from ratchet.engine.pace import Pace
from ratchet.model.clock import ManualClock
from ratchet.model.cluster import BeatAnswer, NodeChange, NodeRecord, NodeSpec, NodeState, Rescue
from ratchet.model.errors import StoreUnavailable
from ratchet.model.identifiers import new_id
from ratchet.model.options import Liveness

#: A node under ``ratchet worker``, and one that is embedded in an application.
WORKER = Liveness(timedelta(seconds=2), timedelta(seconds=5))
EMBEDDED = Liveness(timedelta(seconds=5), timedelta(seconds=15))


@dataclass
class Cluster:
    """A store that knows nodes only, and can be away."""

    clock: ManualClock
    beats: dict[str, int] = field(default_factory=dict)
    rescued: list[str] = field(default_factory=list)
    away: bool = False
    changes: list[NodeChange] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    ended: dict[str, datetime] = field(default_factory=dict)  # rows of dead nodes, and when they were rescued
    looks: int = 0
    look_takes: float = 0.0
    asked_for: list[Sequence[UUID] | None] = field(default_factory=list)
    beat_takes: float = 0.0
    absent: list[str] = field(default_factory=list)
    unknown: list[Any] = field(default_factory=list)

    def register(self, node: NodeSpec, *, now: datetime) -> None:
        self._require()
        self.beats[node.node_id] = 0

    def nodes(self, *, counting: bool = True) -> list[NodeRecord]:
        self._require()
        now = self.clock.now()
        fallen = [
            NodeRecord(
                node_id=node_id,
                name=node_id,
                host="h",
                pid=1,
                version="0",
                state=NodeState.DEAD,
                beat=1,
                beat_interval=timedelta(seconds=2),
                silence=timedelta(seconds=5),
                started_at=now,
                last_beat_at=at,
                rescued_at=at,
                rescued_by="somebody",
            )
            for node_id, at in self.ended.items()
        ]
        return fallen + [
            NodeRecord(
                node_id=node_id,
                name=node_id,
                host="h",
                pid=1,
                version="0",
                state=NodeState.ACTIVE,
                beat=beat,
                beat_interval=timedelta(seconds=2),
                silence=timedelta(seconds=5),
                started_at=now,
                last_beat_at=now,
            )
            for node_id, beat in self.beats.items()
        ]

    def beat(
        self,
        node_id: str,
        *,
        now: datetime,
        change: NodeChange | None = None,
        known: Sequence[UUID] | None = None,
    ) -> BeatAnswer:
        self._require()
        if node_id in self.dead:
            return BeatAnswer(alive=False)
        if change is not None:
            self.changes.append(change)
        self.beats[node_id] = self.beats.get(node_id, 0) + 1
        self.asked_for.append(known)
        self.clock.advance(self.beat_takes if known is None else 0.0)
        return BeatAnswer(alive=True)

    def rescue(
        self, node_id: str, *, seen_beat: int, by: str, max_crashes: int, now: datetime
    ) -> Rescue | None:
        if self.beats.get(node_id) != seen_beat:
            return None
        self.rescued.append(node_id)
        del self.beats[node_id]
        return Rescue(node_id=node_id)

    def absent_nodes(self) -> list[str]:
        self.looks += 1
        self.clock.advance(self.look_takes)
        return self.absent

    def hand_back_unknown(self, *_: Any, **__: Any) -> list[Any]:
        return self.unknown

    def _require(self) -> None:
        if self.away:
            raise StoreUnavailable("away")


class Runs:
    """A coordinator that holds as many runs as it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.has_lost = False

    @property
    def idle(self) -> bool:
        return not self.count

    def held(self) -> list[Any]:
        return [SimpleNamespace(job_id=UUID(int=number)) for number in range(self.count)]

    def abandon(self, *_: Any) -> int:
        dropped, self.count = self.count, 0
        return dropped

    def tokens(self) -> list[Any]:
        return []

    def has_lost_claims(self) -> bool:
        return self.has_lost

    def looked_for_lost_claims(self) -> None:
        return None

    def reconcile(self, *_: Any) -> list[Any]:
        return []


class Observer:
    """One node that beats and watches others."""

    def __init__(self, usual: Liveness = WORKER, slowest: timedelta | None = None) -> None:
        self.clock = ManualClock()
        self.runs = Runs()
        self.told: list[str] = []
        self.cluster = Cluster(self.clock)
        identity = NodeIdentity(new_id, "observer")
        self.heartbeat = Heartbeat(
            nodes=cast(Any, self.cluster),
            coordinator=cast(Any, self.runs),
            identity=identity,
            clock=self.clock,
            pace=Pace(usual, slowest),
            version="0",
            on_handed_back=lambda: self.told.append("lost answers"),
        )
        self.orphans = OrphanRecovery(
            nodes=self.cluster,
            heartbeat=self.heartbeat,
            identity=identity,
            clock=self.clock,
            max_crashes=3,
            on_handed_back=lambda: self.told.append("absent_nodes"),
        )

    def live(self, seconds: float, *, others: tuple[str, ...] = ()) -> None:
        """Beat and look every two seconds, as the service does; *others* beat too."""
        for _ in range(int(seconds / 2)):
            self.clock.advance(2)
            for other in others:
                self.cluster.beat(other, now=self.clock.now())
            try:
                self.heartbeat.run_once(self.clock.now())
                self.orphans.run_once(self.clock.now())
            except StoreUnavailable:
                pass


class TestOrphanRecovery:
    def test_what_is_taken_from_the_dead_wakes_everybody(self) -> None:
        """Claims made after a node's end, and claims whose answer was lost, are due at once; nobody knows of them."""
        observer = Observer()
        observer.live(4)
        assert observer.told == []
        observer.cluster.absent, observer.cluster.unknown = ["gone"], [UUID(int=1)]
        observer.live(30)
        assert "absent_nodes" in observer.told
        observer.told.clear()
        observer.cluster.absent = []
        observer.runs.has_lost = True
        observer.live(2)
        assert observer.told == ["lost answers"]

    def test_a_silent_node_is_rescued_within_eight_seconds(self) -> None:
        """Silence of five seconds, looked at every two."""
        observer = Observer()
        observer.cluster.beats["victim"] = 7
        observer.live(2, others=("victim",))
        observer.live(8)
        assert observer.cluster.rescued == ["victim"]

    def test_a_beating_node_is_left_alone(self) -> None:
        """An hour of beats: nobody is rescued."""
        observer = Observer()
        observer.live(3600, others=("neighbor",))
        assert observer.cluster.rescued == []

    def test_a_database_that_was_away_rescues_nobody(self) -> None:
        """Everybody was silent for ten seconds; everybody is observed anew."""
        observer = Observer()
        observer.live(20, others=("neighbor",))
        observer.cluster.away = True
        observer.live(10)
        observer.cluster.away = False
        # The neighbor is a little slower to come back than the observer.
        observer.live(4)
        observer.live(20, others=("neighbor",))
        assert observer.cluster.rescued == []

    def test_an_observer_that_was_frozen_observes_anew(self) -> None:
        """After a gap of its own it does not judge by what it saw before."""
        observer = Observer()
        observer.live(10, others=("neighbor",))
        observer.clock.advance(3600)
        observer.live(4)
        assert observer.cluster.rescued == []
        observer.live(4)
        assert observer.cluster.rescued == ["neighbor"]

    def test_looks_for_unowned_claims_take_a_small_part_of_the_time(self) -> None:
        """
        After a death with every beat while they cost nothing; where dead rows make them slow, at most a fiftieth of the
        time.
        """
        observer = Observer()
        observer.cluster.ended["fallen"] = observer.clock.now()
        observer.live(20)
        quick = observer.cluster.looks
        assert quick >= 10
        observer.cluster.look_takes = 0.2
        observer.live(60)
        assert 4 <= observer.cluster.looks - quick <= 8

    def test_looks_for_unowned_claims_where_nobody_has_died(self) -> None:
        """Every fifteen seconds, by one of the nodes: there is next to never something to find. A death brings them back."""
        observer = Observer()
        observer.live(60)
        assert 3 <= observer.cluster.looks <= 5
        others = ("a", "b", "c")
        observer.cluster.beats.update(dict.fromkeys(others, 0))
        alone = observer.cluster.looks
        observer.live(240, others=others)
        assert 3 <= observer.cluster.looks - alone <= 5
        observer.cluster.ended["fallen"] = observer.clock.now()
        together = observer.cluster.looks
        observer.live(20, others=others)
        assert observer.cluster.looks - together >= 10
        observer.live(600, others=others)  # five minutes later it is as before
        late = observer.cluster.looks
        observer.live(240, others=others)
        assert 3 <= observer.cluster.looks - late <= 5

    def test_a_few_nodes_keep_watch(self) -> None:
        """Of ten nodes the oldest three look between their beats, too; every one as soon as a beat is missing. One alone does not."""
        observer = Observer()
        observer.live(4)
        assert not observer.orphans.keeps_watch
        others = tuple(f"node {number}" for number in range(9))
        observer.cluster.beats.update(dict.fromkeys(others, 0))
        observer.live(4, others=others)
        assert observer.orphans.keeps_watch
        (own,) = observer.cluster.beats.keys() - set(others)
        for number in (1, 2, 3):
            mine = observer.cluster.beats.pop(own)
            older = dict(list(observer.cluster.beats.items())[:number])
            younger = dict(list(observer.cluster.beats.items())[number:])
            observer.cluster.beats = {**older, own: mine, **younger}
            observer.live(2, others=others)
            assert observer.orphans.keeps_watch is (number < 3)
        observer.live(4, others=others[1:])
        assert observer.orphans.keeps_watch
        observer.live(6, others=others[1:])
        assert observer.cluster.rescued == [others[0]]

    def test_beats_of_an_idle_node_read_claims_now_and_then(self) -> None:
        """It knows of none and has lost none, so there are none; it makes sure every minute, and with every beat once it has work."""
        observer = Observer()
        observer.live(240)
        assert 3 <= observer.cluster.asked_for.count(None) <= 5
        observer.runs.count = 1
        before = len(observer.cluster.asked_for)
        observer.live(10)
        assert observer.cluster.asked_for[before:] == [None] * 5

    def test_beats_that_read_every_claim_take_a_small_part_of_the_time(self) -> None:
        """
        All do while that costs little; where dead rows make it slow, most ask for the jobs that the node knows of, unless
        a claim had no answer.
        """
        observer = Observer()
        observer.runs.count = 2
        observer.cluster.beat_takes = 0.02
        observer.live(20)
        assert observer.cluster.asked_for == [None] * 10
        observer.cluster.beat_takes = 0.2
        observer.live(60)
        asked = observer.cluster.asked_for[10:]
        assert 5 <= asked.count(None) <= 8
        assert [known for known in asked if known is not None] == [[UUID(int=0), UUID(int=1)]] * (
            30 - asked.count(None)
        )
        observer.runs.has_lost = True
        observer.live(20)
        assert observer.cluster.asked_for[40:] == [None] * 10

    def test_a_step_of_the_wall_clock_rescues_nobody(self) -> None:
        """Only this node's own monotonic time is used."""
        observer = Observer()
        observer.live(10, others=("neighbor",))
        observer.clock.set(observer.clock.now() + timedelta(days=1))
        observer.live(4, others=("neighbor",))
        observer.clock.set(observer.clock.now() - timedelta(days=2))
        observer.live(4, others=("neighbor",))
        assert observer.cluster.rescued == []
