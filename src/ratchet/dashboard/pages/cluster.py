"""Queues, limits and breakers, and nodes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import asdict

from ratchet.api.observe.rates import read_statistics
from ratchet.dashboard.pages.overview import QUEUED, RUNS
from ratchet.dashboard.pages.question import Data, Question
from ratchet.model.cluster import BREAKER_GATE, NodeRecord, NodeState, QueueRecord
from ratchet.model.flow import Flow
from ratchet.model.job import Job, JobFilter
from ratchet.model.status import JobStatus

#: Permits that are named for each limit, and limits for which they are.
HOLDERS = 5
HELD_LIMITS = 20
#: Running jobs that are named, over all nodes.
RUNNING = 200
#: Queues that are shown.
QUEUES = 200
#: Dead nodes that are shown.
DEAD = 20


def queues(question: Question) -> Data:
    """The busiest queues, or those with these words in their names: what waits, runs and has run in the last hour."""
    backend = question.scheduler.backend
    load = backend.store.load(now=question.now, most=1)  # the numbers come from samples
    found = read_statistics(backend, timedelta(hours=1), load, question.now, most=RUNS, most_queued=QUEUED)
    flows = {flow.name: flow for flow in found.queues}
    records = {record.name: record for record in question.scheduler.queues.list(counting=False)}
    text = question.words.get("name", "").strip()
    names = [name for name in {*flows, *records} if text.lower() in name.lower()]
    names.sort(key=lambda name: _rank(flows.get(name, Flow(name=name)), paused=_is_paused(records.get(name))))
    return {
        "name": text,
        "total": len(names),
        "queues": [
            {
                "name": name,
                "paused": name in records and records[name].paused,
                "paused_at": records[name].paused_at if name in records else None,
                "paused_until": records[name].paused_until if name in records else None,
                "flow": flows.get(name, Flow(name=name)),
                "rate": _rate(flows.get(name)),
            }
            for name in names[:QUEUES]
        ],
        "sampled": found.sampled,
        "most_runs": RUNS,
        "most_queued": QUEUED,
    }


def _rank(flow: Flow, *, paused: bool) -> tuple[bool, int, str]:
    """What needs a look first: what is paused, then what has most to do."""
    return (not paused, -flow.pending - flow.running - flow.started, flow.name)


def _is_paused(record: QueueRecord | None) -> bool:
    return record is not None and record.paused


def _rate(flow: Flow | None) -> float:
    """Runs that ended, per minute."""
    return 0.0 if flow is None else (flow.succeeded + flow.failed) / 60


def limits(question: Question) -> Data:
    """Limits with those who hold their permits, and circuit breakers."""
    scheduler = question.scheduler
    found = [limit for limit in scheduler.limits.list() if not limit.name.startswith(BREAKER_GATE)]
    held = [limit.name for limit in found if limit.held][:HELD_LIMITS]
    holders = {name: scheduler.limits.holders(name, limit=HOLDERS) for name in held}
    return {
        "limits": [{**asdict(limit), "holders": holders.get(limit.name, [])} for limit in found],
        "breakers": [
            {"service": one.service, "state": one.state, "until": one.until}
            for one in scheduler.breakers.list()
        ],
    }


def nodes(question: Question) -> Data:
    """Nodes that live, the latest dead ones, and what runs on each."""
    now, scheduler = question.now, question.scheduler
    records = scheduler.nodes.list()
    running = scheduler.jobs.find(JobFilter(statuses=[JobStatus.RUNNING]), limit=RUNNING)
    on: dict[str, list[Job]] = {}
    for job in running:
        on.setdefault(job.node_id or "", []).append(job)
    living = [node for node in records if node.state is not NodeState.DEAD]
    dead = [node for node in records if node.state is NodeState.DEAD]
    known = {target for node in living for target in node.about.targets}
    return {
        "nodes": [_node(node, on.get(node.node_id, []), known, alive=node.is_alive(now)) for node in living],
        "dead": [_node(node, [], set(), alive=False) for node in dead[-DEAD:]],
        "more_running": running.next_cursor is not None,
        "most_running": RUNNING,
    }


def _node(node: NodeRecord, running: list[Job], known: set[str], *, alive: bool) -> dict[str, Any]:
    about = node.about
    return {
        "id": node.node_id,
        "name": node.name,
        "host": node.host,
        "pid": node.pid,
        "version": node.version,
        "state": node.state,
        "alive": alive,
        "started_at": node.started_at,
        "last_beat_at": node.last_beat_at,
        "rescued_at": node.rescued_at,
        "rescued_by": node.rescued_by,
        "lanes": about.lanes,
        "full": about.full,
        "down": about.down,
        "queues": about.queues,
        "tags": about.tags,
        "memory": about.memory,
        "keys": about.keys,
        "still_running": about.still_running,
        "request": node.request,
        "targets": sorted(about.targets),
        "missing": sorted(known - set(about.targets)),
        "running": node.running,
        "jobs": [
            {"id": job.id, "target": job.target, "started_at": job.started_at, "progress": job.progress}
            for job in sorted(
                running, key=lambda one: (one.started_at is None, one.started_at or one.created_at)
            )
        ],
    }
