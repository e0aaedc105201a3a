"""Cluster: nodes, beats, rescue, locks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ratchet.model.cluster import NodeChange, NodeRequest, NodeState
from ratchet.model.composition import EdgeKind
from ratchet.model.identifiers import new_id
from ratchet.model.job import ExecutionStatus
from ratchet.model.status import JobStatus
from ratchet.tck.harness import Harness


class TestNodes:
    def test_a_registered_node(self, harness: Harness) -> None:
        """Every field comes back, with beat 0, state ACTIVE and the number of jobs that the node runs."""
        harness.register("node-1", name="web-1", info='{"lanes":["thread"]}', silence=timedelta(seconds=15))
        harness.running(node="node-1")
        harness.running(node="node-1")
        (node,) = harness.store.nodes()
        assert (node.node_id, node.name, node.host, node.pid, node.version) == (
            "node-1",
            "web-1",
            "host.example",
            4711,
            "1.0",
        )
        assert (node.state, node.beat, node.running) == (NodeState.ACTIVE, 0, 2)
        assert (node.beat_interval, node.silence) == (timedelta(seconds=2), timedelta(seconds=15))
        assert (node.started_at, node.last_beat_at) == (harness.now, harness.now)
        assert (node.info, node.rescued_at, node.rescued_by) == ('{"lanes":["thread"]}', None, None)

    def test_listed_by_start(self, harness: Harness) -> None:
        """The node that started first comes first."""
        for name in ("b", "a", "c"):
            harness.register(name)
            harness.advance(seconds=1)
        assert [node.node_id for node in harness.store.nodes()] == ["b", "a", "c"]

    def test_state(self, harness: Harness) -> None:
        """ACTIVE changes to DRAINING; the state of a dead or missing node does not change."""
        harness.register()
        assert harness.store.set_node_state("node-1", NodeState.DRAINING, now=harness.now)
        assert [node.state for node in harness.store.nodes()] == [NodeState.DRAINING]
        assert harness.store.beat("node-1", now=harness.now).alive
        harness.rescue()
        assert not harness.store.set_node_state("node-1", NodeState.ACTIVE, now=harness.now)
        assert not harness.store.set_node_state("nobody", NodeState.ACTIVE, now=harness.now)
        assert [node.state for node in harness.store.nodes()] == [NodeState.DEAD]

    def test_purging_the_dead(self, harness: Harness) -> None:
        """Only DEAD rows that are old enough are deleted."""
        harness.register("dead")
        harness.register("alive")
        harness.rescue("dead")
        assert harness.store.purge_nodes(before=harness.after(seconds=-1)) == 0
        assert harness.store.purge_nodes(before=harness.after(seconds=1)) == 1
        assert [node.node_id for node in harness.store.nodes()] == ["alive"]

    def test_the_database_s_clock(self, harness: Harness) -> None:
        """The time has a zone and is close to this machine's clock, because tests run beside their database."""
        before = datetime.now(UTC)
        moment = harness.store.database_time()
        assert moment.utcoffset() is not None
        assert abs(moment - before) < timedelta(minutes=5)


class TestRequests:
    def test_the_node_learns_of_it_with_its_next_beat(self, harness: Harness) -> None:
        """What is asked is in the row, and in the answer of each beat, until it is taken back; state and beat stay as they are."""
        harness.register()
        assert harness.store.beat("node-1", now=harness.now).request is None
        assert harness.store.request_of_node("node-1", NodeRequest.DRAIN, now=harness.now)
        (node,) = harness.store.nodes()
        assert (node.request, node.state, node.beat) == (NodeRequest.DRAIN, NodeState.ACTIVE, 1)
        assert harness.store.beat("node-1", now=harness.now).request is NodeRequest.DRAIN
        change = NodeChange(beat_interval=node.beat_interval, silence=node.silence, info="{}")
        assert harness.store.beat("node-1", now=harness.now, change=change).request is NodeRequest.DRAIN
        assert harness.store.request_of_node("node-1", None, now=harness.now)
        assert harness.store.beat("node-1", now=harness.now).request is None
        assert [node.request for node in harness.store.nodes()] == [None]

    def test_it_may_be_asked_again(self, harness: Harness) -> None:
        """The same request twice is one request, and both calls say that the node is there."""
        harness.register()
        for _ in range(2):
            assert harness.store.request_of_node("node-1", NodeRequest.DRAIN, now=harness.now)
        assert harness.store.beat("node-1", now=harness.now).request is NodeRequest.DRAIN

    def test_a_stop_is_final(self, harness: Harness) -> None:
        """A drained node may be stopped; a stop becomes nothing else, because the node may be leaving already."""
        harness.register()
        harness.store.request_of_node("node-1", NodeRequest.DRAIN, now=harness.now)
        for request in (NodeRequest.STOP, NodeRequest.DRAIN, None):
            assert harness.store.request_of_node("node-1", request, now=harness.now)
            assert harness.store.beat("node-1", now=harness.now).request is NodeRequest.STOP

    def test_only_the_one_that_was_asked(self, harness: Harness) -> None:
        """Another node, and another incarnation under the same name, hear nothing of it."""
        harness.register("a-1", name="a")
        harness.register("a-2", name="a")
        harness.store.request_of_node("a-1", NodeRequest.STOP, now=harness.now)
        assert harness.store.beat("a-2", now=harness.now).request is None

    def test_nothing_is_asked_of_the_dead(self, harness: Harness) -> None:
        """A dead node, and one that does not exist, cannot be asked, and nothing is written."""
        harness.register()
        harness.rescue()
        assert not harness.store.request_of_node("node-1", NodeRequest.STOP, now=harness.now)
        assert not harness.store.request_of_node("nobody", NodeRequest.STOP, now=harness.now)
        assert [node.request for node in harness.store.nodes()] == [None]


class TestBeat:
    def test_the_counter_grows(self, harness: Harness) -> None:
        """Each beat raises the counter by one and records its time."""
        harness.register()
        harness.advance(seconds=2)
        assert [harness.store.beat("node-1", now=harness.now).alive for _ in range(3)] == [True] * 3
        (node,) = harness.store.nodes()
        assert (node.beat, node.last_beat_at) == (3, harness.now)

    def test_it_tells_the_node_what_it_holds(self, harness: Harness) -> None:
        """The answer holds the node's own claims; canceled ones and those of other nodes are not in it."""
        harness.register()
        kept, canceled = harness.running(), harness.running()
        harness.running(node="node-2")
        harness.store.cancel(canceled.job_id, reason="r", now=harness.now)
        answer = harness.store.beat("node-1", now=harness.now)
        assert answer.claims == {kept.job_id: kept.claim_id}

    def test_it_may_be_asked_for_known_jobs_only(self, harness: Harness) -> None:
        """
        The answer holds the known jobs that the node still has, each with its current token; the counter
        grows as usual.
        """
        harness.register()
        kept, canceled, again, other = (harness.running() for _ in range(4))
        theirs = harness.running(node="node-2")
        harness.store.cancel(canceled.job_id, reason="r", now=harness.now)
        harness.store.hand_back([again], now=harness.now)
        token = harness.claim_job(again.job_id).claim_id
        known = [claim.job_id for claim in (kept, canceled, again, theirs)]
        answer = harness.store.beat("node-1", now=harness.now, known=known)
        assert answer.claims == {kept.job_id: kept.claim_id, again.job_id: token}
        assert harness.store.beat("node-1", now=harness.now, known=[]).claims == {}
        assert other.job_id in harness.store.beat("node-1", now=harness.now).claims
        assert [node.beat for node in harness.store.nodes()] == [3]

    def test_who_watches_beats_does_not_pay_for_counting(self, harness: Harness) -> None:
        """With ``counting=False`` the same nodes are listed without the number of their jobs."""
        harness.register()
        harness.register("node-2")
        harness.running()
        assert [(node.node_id, node.running) for node in harness.store.nodes()] == [
            ("node-1", 1),
            ("node-2", 0),
        ]
        watched = harness.store.nodes(counting=False)
        assert [(node.node_id, node.running) for node in watched] == [("node-1", 0), ("node-2", 0)]

    def test_it_may_bring_the_database_s_time(self, harness: Harness) -> None:
        """If the answer to a beat has a time, it is the database's."""
        harness.register()
        moment = harness.store.beat("node-1", now=harness.now).database_time
        assert moment is None or abs(moment - datetime.now(UTC)) < timedelta(minutes=5)

    def test_it_may_change_what_the_node_says_of_itself(self, harness: Harness) -> None:
        """
        A beat may change interval, silence and description at once; a beat without a change keeps them, and
        a dead node changes nothing.
        """
        harness.register()
        harness.running()
        slow = NodeChange(
            beat_interval=timedelta(seconds=30), silence=timedelta(seconds=75), info='{"targets":["$a:é"]}'
        )
        answer = harness.store.beat("node-1", now=harness.now, change=slow)
        assert (answer.alive, len(answer.claims)) == (True, 1)
        assert harness.store.beat("node-1", now=harness.now).alive
        (node,) = harness.store.nodes()
        assert (node.beat, node.beat_interval, node.silence) == (2, slow.beat_interval, slow.silence)
        assert (node.info, node.about.targets) == (slow.info, ["$a:é"])
        usual = NodeChange(beat_interval=timedelta(seconds=2), silence=timedelta(seconds=5))
        assert harness.store.beat("node-1", now=harness.now, change=usual).alive
        harness.rescue()
        assert not harness.store.beat("node-1", now=harness.now, change=slow).alive
        (node,) = harness.store.nodes()
        assert (node.silence, node.info) == (usual.silence, None)

    def test_a_dead_node_cannot_beat_itself_alive(self, harness: Harness) -> None:
        """A node that was declared dead stays dead: a late beat changes nothing, and its answer says so."""
        harness.register()
        harness.rescue()
        before = harness.store.nodes()
        answer = harness.store.beat("node-1", now=harness.after(seconds=1))
        assert (answer.alive, answer.claims) == (False, {})
        assert harness.store.nodes() == before
        assert not harness.store.beat("nobody", now=harness.now).alive

    def test_a_supervisor_beats_for_many(self, harness: Harness) -> None:
        """Each living node beats once; the answer leaves out dead and missing nodes."""
        for name in ("a", "b", "dead"):
            harness.register(name)
        harness.rescue("dead")
        assert harness.store.beat_only(["a", "b", "dead", "nobody"], now=harness.after(seconds=1)) == {
            "a",
            "b",
        }
        assert {n.node_id: n.beat for n in harness.store.nodes()} == {"a": 1, "b": 1, "dead": 0}
        assert harness.store.beat_only([], now=harness.now) == set()


class TestRescue:
    def test_the_work_goes_back(self, harness: Harness) -> None:
        """
        The job is PENDING at its old due time with one more crash and no attempt used; its run is CRASHED
        in the history.
        """
        harness.register()
        job_id = harness.submit(scheduled_at=harness.after(hours=-1), queue="emails")
        claim = harness.claim_job(job_id)
        harness.advance(seconds=10)
        rescue = harness.rescue()
        assert (rescue.node_id, set(rescue.requeued)) == ("node-1", {job_id})
        assert (rescue.suspects, rescue.dead_lettered, rescue.canceled, rescue.released) == ((), (), (), ())
        record = harness.record(job_id)
        assert (record.status, record.attempts, record.crashes) == (JobStatus.PENDING, 0, 1)
        assert (record.scheduled_at, record.claim_id, record.node_id) == (claim.scheduled_at, None, None)
        (row,) = harness.store.executions(job_id, uncounted=True)
        assert (row.claim_id, row.status, row.counted) == (claim.claim_id, ExecutionStatus.CRASHED, False)
        (node,) = harness.store.nodes()
        assert (node.state, node.rescued_at, node.rescued_by, node.running) == (
            NodeState.DEAD,
            harness.now,
            "rescuer",
            0,
        )

    def test_only_this_node_s_work(self, harness: Harness) -> None:
        """Jobs of other nodes and jobs that wait are not touched."""
        harness.register("node-1")
        harness.register("node-2")
        mine, theirs = harness.running(node="node-1"), harness.running(node="node-2")
        waiting = harness.submit()
        rescue = harness.rescue("node-1")
        assert set(rescue.requeued) == {mine.job_id}
        assert harness.record(waiting).crashes == 0
        harness.end(theirs)

    def test_only_while_the_beat_stands_still(self, harness: Harness) -> None:
        """The node has beaten since it was last seen: the answer is None, and nothing is written."""
        harness.register()
        claim = harness.running()
        harness.store.beat("node-1", now=harness.now)
        before = harness.store.nodes()
        assert harness.store.rescue("node-1", seen_beat=0, by="r", max_crashes=3, now=harness.now) is None
        assert harness.store.rescue("node-1", seen_beat=2, by="r", max_crashes=3, now=harness.now) is None
        assert harness.store.rescue("nobody", seen_beat=0, by="r", max_crashes=3, now=harness.now) is None
        assert harness.store.nodes() == before
        harness.end(claim)

    def test_once(self, harness: Harness) -> None:
        """A dead node is not rescued again, whoever asks."""
        harness.register()
        harness.running()
        harness.rescue()
        beat = harness.beat_of("node-1")
        assert harness.store.rescue("node-1", seen_beat=beat, by="r", max_crashes=3, now=harness.now) is None
        assert harness.store.counts()[JobStatus.PENDING] == 1

    def crash(self, harness: Harness, number: int, *, max_crashes: int = 3, suspects: bool = False) -> None:
        """Let a new node claim everything and die."""
        node = harness.register(f"incarnation-{number}")
        assert harness.claim(node_id=node, suspects=suspects)
        self.last = harness.rescue(node, max_crashes=max_crashes)

    def test_the_second_crash_makes_suspects(self, harness: Harness) -> None:
        """Both jobs become suspects: ordinary claims skip them, and a claim for suspects takes them."""
        ids = set(harness.submit_many(2, queue="emails"))
        self.crash(harness, 1)
        assert set(self.last.requeued) == ids
        self.crash(harness, 2)
        assert set(self.last.suspects) == ids
        assert self.last.dead_lettered == ()
        assert harness.claim() == []
        assert {s.key.queue for s in harness.store.streams() if s.key.suspect} == {"emails"}
        (claim,) = harness.claim(1, suspects=True)
        assert claim.crashes == 2

    def test_only_the_culprit_is_dead_lettered(self, harness: Harness) -> None:
        """Two suspects run one at a time: the one that crashes again becomes a dead letter, and the other one succeeds."""
        culprit, neighbor = harness.submit_many(2)
        self.crash(harness, 1)
        self.crash(harness, 2)
        node = harness.register("incarnation-3")
        (claim,) = harness.claim(1, node_id=node, suspects=True)
        rescue = harness.rescue(node)
        assert rescue.dead_lettered == (claim.job_id,)
        assert claim.job_id == culprit
        record = harness.record(culprit)
        assert (record.status, record.crashes, record.attempts) == (JobStatus.FAILED, 3, 0)
        assert record.dead_letter_reason
        assert [letter.job_id for letter in harness.store.dead_letters()] == [culprit]
        assert len(harness.store.alerts_of(culprit)) == 1
        harness.end(harness.claim_job(neighbor, suspects=True))

    def test_a_dead_letter_settles_its_edges(self, harness: Harness) -> None:
        """A dead letter from a rescue does what any failure does: it releases failure branches and cancels next steps."""
        harness.register()
        parent, step, alarm = harness.spec(), harness.child(), harness.child()
        harness.insert(
            [parent, step, alarm],
            [harness.edge(parent, step), harness.edge(parent, alarm, EdgeKind.FAILURE, position=1)],
        )
        harness.claim_job(parent.job_id)
        rescue = harness.rescue(max_crashes=1)
        assert rescue.dead_lettered == (parent.job_id,)
        assert rescue.requeued == ()
        assert [c.job_id for c in rescue.canceled] == [step.job_id]
        assert rescue.released == (alarm.job_id,)
        assert harness.statuses(s.job_id for s in (parent, step, alarm)) == [
            JobStatus.FAILED,
            JobStatus.CANCELED,
            JobStatus.PENDING,
        ]

    def test_its_locks_are_free(self, harness: Harness) -> None:
        """The locks of the dead node are free at once, before their leases end."""
        harness.register()
        ttl = timedelta(hours=1)
        assert harness.store.acquire_lock("sweep", holder="node-1", token=new_id(), ttl=ttl, now=harness.now)
        assert harness.store.acquire_lock("other", holder="node-2", token=new_id(), ttl=ttl, now=harness.now)
        harness.rescue()
        assert harness.store.lock("sweep") is None
        assert harness.store.lock("other") is not None

    def test_a_draining_node_can_be_rescued(self, harness: Harness) -> None:
        """A node that dies while it is draining is rescued like any other."""
        harness.register()
        claim = harness.running()
        harness.store.set_node_state("node-1", NodeState.DRAINING, now=harness.now)
        assert set(harness.rescue().requeued) == {claim.job_id}

    def test_a_new_incarnation_starts_clean(self, harness: Harness) -> None:
        """The row of the dead node stays; a new node works beside it and claims the job again."""
        harness.register("node-1")
        claim = harness.running(node="node-1")
        harness.rescue("node-1")
        harness.register("node-1b")
        again = harness.claim_job(claim.job_id, node_id="node-1b")
        assert harness.store.beat("node-1b", now=harness.now).claims == {again.job_id: again.claim_id}
        harness.end(again)

    def test_an_idle_node(self, harness: Harness) -> None:
        """There is nothing to take back, but the node is declared dead."""
        harness.register()
        rescue = harness.rescue()
        assert (rescue.requeued, rescue.suspects, rescue.dead_lettered) == ((), (), ())
        assert not harness.store.beat("node-1", now=harness.now).alive


class TestStrays:
    def test_work_under_a_name_that_nobody_answers_to(self, harness: Harness) -> None:
        """RUNNING jobs of a dead or unknown node are found; those of living nodes are not."""
        harness.register("alive")
        harness.register("dead")
        harness.rescue("dead")
        harness.running(node="alive")
        assert harness.store.absent_nodes() == []
        late, unknown = harness.running(node="dead"), harness.running(node="unknown")
        assert sorted(harness.store.absent_nodes()) == ["dead", "unknown"]
        harness.end(late)
        assert harness.store.absent_nodes() == ["unknown"]
        assert harness.store.deregister("unknown", now=harness.now) == 1
        assert harness.store.absent_nodes() == []
        assert harness.status(unknown.job_id) is JobStatus.PENDING

    def test_keys_and_permits_of_ended_jobs(self, harness: Harness) -> None:
        """Keys and permits that a canceled run of a missing node still holds are found, and `deregister` frees them."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        for name, holds in (("keeper", {"business_key": "k"}), ("user", {"resource": "gateway"})):
            claim = harness.running(node=name, **holds)
            harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        assert sorted(harness.store.absent_nodes()) == ["keeper", "user"]
        for name in ("keeper", "user"):
            harness.store.deregister(name, now=harness.now)
        assert harness.store.absent_nodes() == []
        harness.running(business_key="k", resource="gateway")


class TestDeregister:
    def test_a_clean_goodbye(self, harness: Harness) -> None:
        """Jobs that are still running go back uncounted, and the row of the node is gone."""
        harness.register()
        job_id = harness.submit(scheduled_at=harness.after(hours=-1))
        claim = harness.claim_job(job_id)
        assert harness.store.deregister("node-1", now=harness.now) == 1
        assert harness.store.nodes() == []
        record = harness.record(job_id)
        assert (record.status, record.crashes, record.attempts) == (JobStatus.PENDING, 0, 0)
        assert record.scheduled_at == harness.after(hours=-1)
        assert not harness.complete(claim).won
        assert harness.store.deregister("node-1", now=harness.now) == 0


class TestLocks:
    TTL = timedelta(seconds=30)

    def test_one_holder_at_a_time(self, harness: Harness) -> None:
        """A lock stays taken until its holder releases it."""
        mine, theirs = new_id(), new_id()
        assert harness.store.lock("sweep") is None
        assert harness.store.acquire_lock("sweep", holder="a", token=mine, ttl=self.TTL, now=harness.now)
        assert not harness.store.acquire_lock(
            "sweep", holder="b", token=theirs, ttl=self.TTL, now=harness.now
        )
        assert harness.store.acquire_lock("other", holder="b", token=theirs, ttl=self.TTL, now=harness.now)
        lock = harness.store.lock("sweep")
        assert lock is not None
        assert (lock.name, lock.holder, lock.token) == ("sweep", "a", mine)
        assert (lock.locked_at, lock.expires_at) == (harness.now, harness.now + self.TTL)
        assert not harness.store.release_lock("sweep", token=theirs)
        assert harness.store.release_lock("sweep", token=mine)
        assert not harness.store.release_lock("sweep", token=mine)
        assert harness.store.acquire_lock("sweep", holder="b", token=theirs, ttl=self.TTL, now=harness.now)

    def test_the_holder_renews(self, harness: Harness) -> None:
        """Acquiring it again with the same token renews the lock; another token of the same holder is refused."""
        token = new_id()
        assert harness.store.acquire_lock("sweep", holder="a", token=token, ttl=self.TTL, now=harness.now)
        harness.advance(seconds=20)
        assert not harness.store.acquire_lock(
            "sweep", holder="a", token=new_id(), ttl=self.TTL, now=harness.now
        )
        assert harness.store.acquire_lock("sweep", holder="a", token=token, ttl=self.TTL, now=harness.now)
        lock = harness.store.lock("sweep")
        assert lock is not None
        assert lock.expires_at == harness.now + self.TTL

    def test_an_expired_lock_is_free(self, harness: Harness) -> None:
        """When the lease has expired, another holder takes the lock, and the old token is no longer valid."""
        old, new = new_id(), new_id()
        assert harness.store.acquire_lock("sweep", holder="a", token=old, ttl=self.TTL, now=harness.now)
        harness.advance(seconds=29)
        assert not harness.store.acquire_lock("sweep", holder="b", token=new, ttl=self.TTL, now=harness.now)
        harness.advance(seconds=2)
        assert harness.store.acquire_lock("sweep", holder="b", token=new, ttl=self.TTL, now=harness.now)
        assert not harness.store.acquire_lock("sweep", holder="a", token=old, ttl=self.TTL, now=harness.now)
        assert not harness.store.release_lock("sweep", token=old)
        lock = harness.store.lock("sweep")
        assert lock is not None
        assert lock.token == new
