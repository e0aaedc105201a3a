"""The overview: what is wrong, what flows, how long it waits."""

from __future__ import annotations

from datetime import timedelta

from ratchet.api.authorization import require
from ratchet.api.backend import Backend
from ratchet.api.observe.health import health_of
from ratchet.api.observe.rates import read_statistics
from ratchet.dashboard.pages.question import Data, Question
from ratchet.model.errors import RatchetError
from ratchet.model.flow import Flow
from ratchet.model.load import COUNTED, Load
from ratchet.model.permissions import Permission

#: The windows that can be looked at.
WINDOWS = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
#: Runs, the newest, and jobs that wait or run, the first, that queues and functions are told of. Each costs some microseconds.
RUNS = 3_000
QUEUED = 5_000
#: Targets and queues that are listed, those with most to tell first.
MOST_TARGETS = 20
MOST_QUEUES = 15

#: An overview is some thirty statements, and an open one is to send one in a second. Due jobs are counted for 32 queues in one
#: statement, so with thousands of queues it is read more seldom.
SHORTEST_REST = 30.0
QUEUES_PER_SECOND = 40
LONGEST_REST = 60.0

#: Where a problem can be looked at.
_PLACES = {
    "no_nodes": "/nodes",
    "silent_nodes": "/nodes",
    "lane_down": "/nodes",
    "no_node_for_queue": "/nodes",
    "parked": "/jobs?parked=1",
    "paused_queue": "/queues",
    "open_breaker": "/limits",
    "overdue": "/jobs?status=PENDING&sort=SCHEDULED&order=asc",
    "dead_letters": "/dead-letters",
    "late_schedule": "/schedules",
    "slots_full": "/nodes",
    "no_permit": "/limits",
    "rate_limited": "/limits",
    "queue_reopens": "/queues",
    "not_due": "/jobs?status=PENDING",
    "flowing": "/jobs?status=PENDING",
}


def overview(question: Question) -> Data:
    """Health first, then the numbers of the last hour or day."""
    chosen = question.words.get("window", "hour")
    window = chosen if chosen in WINDOWS else "hour"
    backend = question.scheduler.backend
    require(backend, Permission.LIST, about="health")
    load = _load(backend)
    health = health_of(backend, load=load)
    data: Data = {
        "window": window,
        "health": health,
        "places": _PLACES,
        "counted": COUNTED,
    }
    if load is None or not (health["reachable"] and health["schema_ok"]):
        return {**data, "totals": None, "points": [], "queues": [], "targets": [], "sampled": False}
    found = read_statistics(backend, WINDOWS[window], load, backend.now(), most=RUNS, most_queued=QUEUED)
    points = question.scheduler.jobs.history(WINDOWS[window])
    queues = sorted(found.queues, key=_busiest)
    targets = sorted(found.targets, key=lambda flow: (-flow.failed, -flow.started - flow.pending, flow.name))
    return {
        **data,
        "points": points,
        # What nodes have counted is exact, but a minute late; where a sample is all there was, it is exact and now.
        "totals": {
            name: max(
                sum(getattr(flow, name) for flow in found.queues),
                sum(getattr(point, name) for point in points) if found.sampled else 0,
            )
            for name in ("started", "succeeded", "failed", "retried")
        },
        "most_runs": RUNS,
        "most_queued": QUEUED,
        "queues": queues[:MOST_QUEUES],
        "more_queues": max(len(queues) - MOST_QUEUES, 0),
        "targets": targets[:MOST_TARGETS],
        "more_targets": max(len(targets) - MOST_TARGETS, 0),
        "sampled": found.sampled,
    }


def rest_of(data: Data) -> float:
    """For how many seconds an open overview is not read again: the longer, the more queues there are."""
    queues: int = len(data["queues"]) + data.get("more_queues", 0)
    return min(max(queues / QUEUES_PER_SECOND, SHORTEST_REST), LONGEST_REST)


def _load(backend: Backend) -> Load | None:
    """What waits and runs, read once for health and numbers; None where the store does not answer, which health says."""
    try:
        return backend.store.load(now=backend.now())
    except RatchetError:
        return None


def _busiest(flow: Flow) -> tuple[int, str]:
    return (-flow.pending - flow.running - flow.started, flow.name)
