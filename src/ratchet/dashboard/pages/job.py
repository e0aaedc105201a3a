"""One job: where it is, what it did, why it is not running, and what can be done with it."""

from __future__ import annotations

import json
import shlex
from typing import Any
from uuid import UUID

from ratchet.api.authorization import is_permitted
from ratchet.api.observe.graphs import JobGraph
from ratchet.dashboard.drawing.graphs import said
from ratchet.dashboard.pages.question import Data, Question, path_of
from ratchet.model.audit import AuditEntry, AuditFilter
from ratchet.model.callbacks import plain_target
from ratchet.model.errors import ConfigurationError
from ratchet.model.job import Job
from ratchet.model.permissions import Permission
from ratchet.model.status import AT_REST, JobStatus

#: Log lines that a page shows, the newest.
LINES = 500
#: What people have done to it, the newest.
ACTIONS = 20
#: Parents and dependants that a page lists.
RELATIVES = 50

_PAGES_OF = {"queue": "/queues", "breaker": "/limits"}


def job(question: Question) -> Data:
    """Everything about one job."""
    scheduler = question.scheduler
    found = scheduler.jobs.get(question.names["id"])
    graph = scheduler.handle(found.id).graph()
    reasons = [] if found.status.is_terminal else scheduler.explain(found.id)
    runs = scheduler.jobs.executions(found.id, all=True)
    return {
        "job": found,
        "values": found.to_dict(),  # what is masked is masked here
        "runs": runs,
        "lines": scheduler.jobs.logs(found.id, limit=LINES),
        "most_lines": LINES,
        "reasons": [
            {**reason._asdict(), "blockers": [_blocker(one._asdict()) for one in reason.blockers]}
            for reason in reasons
        ],
        "claimable": not reasons and found.status is JobStatus.PENDING,
        "parents": _relatives(graph, found.id, up=True),
        "dependants": _relatives(graph, found.id, up=False),
        "graph_size": len(graph),
        "actions": _actions(question, found.id),
        "verbs": verbs_for(found),
        "as_python": as_python(found),
        "as_command": as_command(found),
    }


def job_pulse(question: Question) -> Any:
    """Its state, and what it says while it runs."""
    handle, jobs = question.scheduler.handle(question.names["id"]), question.scheduler.jobs
    status = handle.status()
    if status is not JobStatus.RUNNING:
        return status
    return [jobs.get(handle.id), jobs.logs(handle.id, limit=1)]


def _actions(question: Question, job_id: UUID) -> list[AuditEntry] | None:
    """Who has done what to it, newest first; None where that is not kept, and for who may not see it."""
    if not is_permitted(question.scheduler.backend, Permission.AUDIT):
        return None
    try:
        return list(question.scheduler.audit.find(AuditFilter(job_id=job_id), limit=ACTIONS))
    except ConfigurationError:
        return None


def verbs_for(found: Job) -> list[str]:
    """What can be done with a job in its state."""
    if found.archived:
        return []
    status, verbs = found.status, []
    if status is JobStatus.FAILED or (status is JobStatus.PAUSED and found.finished_at is not None):
        verbs.append("retry")
    if status in (JobStatus.PENDING, JobStatus.PAUSED):
        verbs.append("run-now")
    if status is JobStatus.PAUSED:
        verbs.append("resume")
    if status in (JobStatus.PENDING, JobStatus.FAILED):
        verbs.append("pause")
    if not status.is_terminal:
        verbs.append("cancel")
    if status in AT_REST:
        verbs.append("set-priority")
    if status is not JobStatus.RUNNING:
        verbs.append("delete")
    return verbs


def _blocker(blocker: dict[str, Any]) -> dict[str, Any]:
    """Who holds it back, with the page of it."""
    if blocker["kind"] == "job":
        page = path_of("jobs", blocker["name"])
    elif blocker["kind"] == "node":
        page = "/nodes"
    else:
        page = _PAGES_OF.get(blocker["kind"], "/")
    return {**blocker, "page": page}


def _relatives(graph: JobGraph, job_id: UUID, *, up: bool) -> list[dict[str, Any]]:
    found = []
    for edge in graph.edges:
        here, there = (edge.child_id, edge.parent_id) if up else (edge.parent_id, edge.child_id)
        node = graph.node(there)
        if here == job_id and node is not None:
            found.append({"id": there, "target": node.target, "status": node.status, "edge": said(edge)})
    return found[:RELATIVES]


def as_python(found: Job) -> str:
    """How to submit such a job again; values that JSON has no word for are shown as text."""
    values = found.to_dict()
    given = [repr(plain_target(found.target)), *map(repr, values["args"])]
    given += [
        f"{name}={value!r}" if name.isidentifier() else f"**{{{name!r}: {value!r}}}"
        for name, value in values["kwargs"].items()
    ]
    lines = [f"scheduler.enqueue_by_name({', '.join(given)})"]
    if found.priority.name != "NORMAL":
        lines.append(f".with_priority(Priority.{found.priority.name})")
    if found.queue != "default":
        lines.append(f".with_queue({found.queue!r})")
    if found.tags:
        lines.append(f".with_tags({', '.join(map(repr, found.tags))})")
    if found.max_retries:
        lines.append(f".with_max_retries({found.max_retries})")
    lines.append(".submit()")
    return lines[0] + lines[1] if len(lines) == 2 else "(" + "\n    ".join(lines) + ")"


def as_command(found: Job) -> str:
    """The same as a command."""
    values = found.to_dict()
    words = ["ratchet", "jobs", "submit", plain_target(found.target)]
    if values["args"]:
        words += ["--args", json.dumps(values["args"], ensure_ascii=False)]
    if values["kwargs"]:
        words += ["--kwargs", json.dumps(values["kwargs"], ensure_ascii=False)]
    if found.queue != "default":
        words += ["--queue", found.queue]
    return shlex.join(words)
