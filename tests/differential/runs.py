"""Operations on runs: claims, ends of every kind, hand-backs, and what the death of a node does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import NodeRequest, NodeSpec, NodeState
from ratchet.model.decision import (
    Completion,
    CountCrash,
    Decision,
    ErrorRecord,
    Fail,
    HandBack,
    Reschedule,
    Retry,
    Succeed,
    Verdict,
    VerdictKind,
)
from ratchet.model.job import LogEntry, Progress
from ratchet.model.status import JobType, Lane
from tests.differential.lives import MESSAGES, QUEUES, TARGETS, Life, Operation
from tests.differential.players import Player, Run


def request(life: Life, **changes: Any) -> ClaimRequest:
    """What a node wants."""
    queues = life.seldom(0.15, lambda: frozenset(life.some(QUEUES, 2)))
    return ClaimRequest(
        **{
            "node_id": life.one(life.nodes),
            "claim_id": life.new("claim"),
            "limit": life.one((1, 2, 3, 5, 20)),
            "lane": life.one((Lane.THREAD, Lane.THREAD, Lane.THREAD, Lane.ASYNC)),
            "queues": queues,
            "boost_interval": life.one((timedelta(minutes=15), timedelta(minutes=1), None)),
            "suspects": life.happens(0.15),
            "parked_targets": frozenset(life.some(TARGETS, 1)),
            **changes,
        }
    )


def claim(life: Life) -> Operation:
    """Take what is due, with bodies or without."""
    wanted, now, light = request(life), life.now, life.happens(0.3)
    queues = None if wanted.queues is None else sorted(wanted.queues)
    told = (
        f"{life.name(wanted.claim_id)}, {wanted.node_id}, limit={wanted.limit}, {wanted.lane.value}, queues={queues}, "
        f"boost={wanted.boost_interval}, suspects={wanted.suspects}, parked={sorted(wanted.parked_targets)}"
    )

    def call(player: Player) -> object:
        return player.take_light(wanted, now) if light else player.take(wanted, now)

    return Operation(f"claim({told})", call, now)


def _error(life: Life) -> ErrorRecord:
    return ErrorRecord(message=life.one(MESSAGES), type="shop.Declined", traceback="Traceback: …")


def _decision(life: Life) -> Decision:
    at = life.about_now()
    kinds: list[Decision] = [
        Succeed(result='"receipt"'),
        Succeed(result=None),
        Retry(at=at, error=_error(life), timed_out=life.happens(0.2)),
        Fail(error=_error(life), reason="retries exhausted", error_hash=life.one("ab") * 64),
        Fail(error=_error(life), reason="do_not_retry", error_hash="c" * 64, timed_out=life.happens(0.3)),
        Reschedule(at=at, reason="later"),
        HandBack(),
        CountCrash(detail="signal 9", max_crashes=3),
    ]
    return life.one(kinds)


def _ending(life: Life, run: Run) -> dict[str, Any]:
    # a lost run says again what it said before; another end of it would be somebody else's
    held = life.known.store.claims_of(life.known.claims[run].node_id).get(run[0]) == run[1]
    decision = _decision(life) if held else Succeed(result='"receipt"')
    verdicts = [
        Verdict(child_id=edge.child_id, kind=kind, error=_error(life) if kind is VerdictKind.ERROR else None)
        for edge in life.known.store.conditions_of(run[0])
        if (kind := life.seldom(0.85, lambda: life.one(list(VerdictKind)))) is not None
    ]
    started = None if isinstance(decision, HandBack) else life.now - timedelta(seconds=1.5)
    callback = None
    if held and life.happens(0.1):
        plain_keys: dict[str, Any] = {"business_key": None, "idempotency_key": None}
        callback = life.spec(type=JobType.CALLBACK, parent_id=run[0], **plain_keys)
    return {
        "decision": decision,
        "verdicts": tuple(verdicts),
        "callback": callback,
        "started_at": started,
        "finished_at": life.now,
        "state": life.seldom(0.1, lambda: '{"page":2}'),
        "still_running": life.happens(0.25),
    }


def complete(life: Life) -> Operation:
    """End up to four runs in one call, each in its own way."""
    now = life.now
    endings = [(run, _ending(life, run)) for run in life.runs(4)]

    def call(player: Player) -> object:
        ends = [Completion(claim=player.claims[run], **ending) for run, ending in endings]
        answers = player.store.complete(ends, now=now)
        return [
            {
                "answer": (one.won, one.replayed, one.alerted, one.dead_lettered),
                "released": sorted(map(life.name, one.released)),
                "canceled": one.canceled,
                "finished": sorted(map(life.name, one.finished_batches)),
            }
            for one in answers
        ]

    told = "; ".join(
        f"{life.show([run])} {type(ending['decision']).__name__}"
        f"{' still_running' if ending['still_running'] else ''}"
        f"{' ' + ','.join(v.kind.value for v in ending['verdicts']) if ending['verdicts'] else ''}"
        f"{' callback' if ending['callback'] else ''}"
        for run, ending in endings
    )
    return Operation(f"complete({told})", call, now)


def settle(life: Life) -> Operation:
    """The code of runs, ended or not, has ended."""
    runs, now = life.runs() if life.happens(0.3) else list(life.known.claims)[-6:], life.now
    return Operation(
        f"settle({life.show(runs)})",
        lambda player: player.store.settle([player.claims[run] for run in runs], now=now),
        now,
    )


def hand_back(life: Life) -> Operation:
    """Runs that did not start."""
    runs, now = life.runs(), life.now
    return Operation(
        f"hand_back({life.show(runs)})",
        lambda player: player.store.hand_back([player.claims[run] for run in runs], now=now),
        now,
    )


def hand_back_unknown(life: Life) -> Operation:
    """A node knows some of its claims."""
    node, now = life.one(life.nodes), life.now
    known = [claim_id for _, claim_id in life.held() if life.happens(0.7)]
    return Operation(
        f"hand_back_unknown({node}, {[life.name(one) for one in known]})",
        lambda player: player.store.hand_back_unknown(node, known, now=now),
        now,
    )


def park(life: Life) -> Operation:
    """A target that this node cannot import."""
    runs, now = life.runs(1), life.now
    target = life.one(TARGETS)
    return Operation(
        f"park({life.show(runs)}, {target})",
        lambda player: [player.store.park(player.claims[run], target, now=now) for run in runs],
        now,
    )


def save(life: Life) -> Operation:
    """Progress, a checkpoint, a line of the log."""
    runs, now = life.runs(1), life.now
    progress = Progress(fraction=life.one((0.0, 0.3, 1.0)), message=life.seldom(0.5, lambda: "half"))
    level = life.one(("INFO", "ERROR"))

    def call(player: Player) -> object:
        answers: list[object] = []
        for run in runs:
            claimed = player.claims[run]
            answers.append(player.store.save_progress(claimed, progress, now=now))
            answers.append(player.store.save_state(claimed, '{"page":1}', now=now))
            line = LogEntry(
                job_id=run[0],
                claim_id=run[1],
                sequence=1,
                attempt=1,
                at=now,
                level=level,
                logger="shop",
                message="ding",
            )
            player.store.append_logs([line], now=now)
            answers.append(player.store.logs(run[0]))
        return answers

    return Operation(f"save({life.show(runs)})", call, now)


def release_permits(life: Life) -> Operation:
    """Permits of runs, held or lost."""
    runs = life.runs(2)
    return Operation(
        f"release_permits({life.show(runs)})",
        lambda player: player.store.release_permits([player.claims[run] for run in runs]),
        life.now,
    )


# --- nodes ----------------------------------------------------------------------------------------


def register(life: Life, node_id: str) -> Operation:
    """A process that starts."""
    now = life.now
    spec = NodeSpec(
        node_id=node_id,
        name=node_id,
        host="host.example",
        pid=4711,
        version="1.0",
        beat_interval=timedelta(seconds=2),
        silence=timedelta(seconds=5),
    )
    return Operation(f"register({node_id})", lambda player: player.store.register(spec, now=now), now)


def _reborn(life: Life, node: str, call: Any, text: str) -> Operation:
    """The node is gone; another incarnation takes its place."""
    life.incarnations += 1
    following = register(life, f"node-{life.incarnations}")
    life.nodes[life.nodes.index(node)] = f"node-{life.incarnations}"

    def both(player: Player) -> object:
        return [call(player), following.call(player)]

    return Operation(f"{text}, {following.text}", both, life.now)


def rescue(life: Life) -> Operation:
    """A node is declared dead, by who has seen its beat, or by who has not."""
    node, now = life.one(life.nodes), life.now
    seen = next((one.beat for one in life.known.store.nodes() if one.node_id == node), 0)
    if life.happens(0.15):
        return Operation(
            f"rescue({node}, an old beat)",
            lambda player: player.store.rescue(node, seen_beat=seen + 1, by="node-9", max_crashes=3, now=now),
            now,
        )

    def call(player: Player) -> object:
        return player.store.rescue(node, seen_beat=seen, by="node-9", max_crashes=3, now=now)

    return _reborn(life, node, call, f"rescue({node})")


def deregister(life: Life) -> Operation:
    """A node says goodbye."""
    node, now = life.one(life.nodes), life.now
    return _reborn(life, node, lambda player: player.store.deregister(node, now=now), f"deregister({node})")


def beat(life: Life) -> Operation:
    """A node says that it is there, and learns what it holds."""
    node, now = life.one([*life.nodes, "node-1", "nobody"]), life.now

    def call(player: Player) -> object:
        player.store.beat_only([node], now=now)
        return player.store.beat(node, now=now)

    return Operation(f"beat({node})", call, now)


def set_node_state(life: Life) -> Operation:
    """A node drains, or takes work again."""
    node, now = life.one([*life.nodes, "nobody"]), life.now
    state = life.one((NodeState.ACTIVE, NodeState.DRAINING))
    return Operation(
        f"set_node_state({node}, {state.value})",
        lambda player: player.store.set_node_state(node, state, now=now),
        now,
    )


def request_of_node(life: Life) -> Operation:
    """Somebody asks something of a node, or takes it back; a stop stays."""
    node, now = life.one([*life.nodes, "nobody"]), life.now
    request = life.one((NodeRequest.DRAIN, NodeRequest.DRAIN, None, None, NodeRequest.STOP))
    return Operation(
        f"request_of_node({node}, {request})",
        lambda player: player.store.request_of_node(node, request, now=now),
        now,
    )
