"""The overview: what is wrong, what flows, how long it waits."""

from __future__ import annotations

from datetime import timedelta

from ratchet.dashboard.pages.question import Data, Question
from ratchet.model.flow import Flow
from ratchet.model.load import COUNTED

#: The windows that can be looked at.
WINDOWS = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
#: Targets that are listed, those with most to tell first.
MOST_TARGETS = 20

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
    health = question.scheduler.health()
    data: Data = {"window": window, "health": health, "places": _PLACES, "counted": COUNTED}
    if not (health["reachable"] and health["schema_ok"]):
        return {**data, "totals": None, "points": [], "queues": [], "targets": [], "sampled": False}
    found = question.scheduler.jobs.statistics(WINDOWS[window])
    targets = sorted(found.targets, key=lambda flow: (-flow.failed, -flow.started - flow.pending, flow.name))
    return {
        **data,
        "points": question.scheduler.jobs.history(WINDOWS[window]),
        "totals": {
            name: sum(getattr(flow, name) for flow in found.queues)
            for name in ("started", "succeeded", "failed", "retried")
        },
        "queues": sorted(found.queues, key=_busiest),
        "targets": targets[:MOST_TARGETS],
        "more_targets": max(len(targets) - MOST_TARGETS, 0),
        "sampled": found.sampled,
    }


def _busiest(flow: Flow) -> tuple[int, str]:
    return (-flow.pending - flow.running - flow.started, flow.name)
