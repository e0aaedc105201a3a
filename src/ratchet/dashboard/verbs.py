"""
What a person can do: each verb has an address, a permission, and a function that carries it out.

Verbs for one object act at once. Those for many first answer how many jobs that would be; a program, which asks for
JSON, is not asked again unless it says ``dry_run``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ratchet.api.recurring import Misfire, plain_arguments
from ratchet.dashboard.bulk import change_many
from ratchet.dashboard.filters import Words, address
from ratchet.dashboard.orders import Confirmation, Done, Order
from ratchet.dashboard.pages.question import path_of, pattern_of
from ratchet.model.durations import parse_duration
from ratchet.model.errors import InvalidJob
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus, Priority

Act = Callable[[Order], "Done | Confirmation"]


@dataclass(frozen=True)
class Verb:
    """One thing that can be done: ``jobs.retry`` at ``/jobs/{id}/retry``."""

    permission: str
    path: str
    act: Act
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", pattern_of(self.path))


# --- one job ---


def _job(verb: str, change: Callable[[Order, str], bool], refusal: str) -> Verb:
    def act(order: Order) -> Done:
        job_id = str(order.scheduler.jobs.get(order.names["id"]).id)
        changed = change(order, job_id)
        back = "/jobs" if verb == "delete" else path_of("jobs", job_id)
        return Done(f"job {job_id}", back, int(changed), refusal=refusal)

    return Verb(f"jobs.{verb}", f"/jobs/{{id}}/{verb}", act)


def priority_of(form: Words) -> Priority:
    """The priority that a form names: ``to``, because ``priority`` chooses jobs."""
    word = form.get("to", "").strip().upper()
    if word not in Priority.__members__:
        raise InvalidJob(f"to: {word!r} is no priority; it is one of {', '.join(Priority.__members__)}")
    return Priority[word]


_JOB_VERBS = (
    _job("retry", lambda o, i: o.scheduler.retry_job(i), "it is not FAILED"),
    _job(
        "cancel",
        lambda o, i: o.scheduler.cancel_job(i, reason=f"requested by {o.who}"[:200]),
        "it has ended",
    ),
    _job("pause", lambda o, i: o.scheduler.pause_job(i), "it is neither PENDING nor FAILED"),
    _job("resume", lambda o, i: o.scheduler.resume_job(i), "it is not PAUSED"),
    _job("run-now", lambda o, i: run_now(o, i), "it has started or ended"),
    _job(
        "set-priority",
        lambda o, i: o.scheduler.set_priority(i, priority_of(o.form)),
        "it has started or ended",
    ),
    _job("delete", lambda o, i: o.scheduler.jobs.delete(i), "it is RUNNING; cancel it first"),
)


def run_now(order: Order, job_id: str) -> bool:
    """Make a job due now; one that is paused is resumed too."""
    moved = order.scheduler.reschedule_job(job_id, timedelta())
    if moved and order.scheduler.jobs.get(job_id).status is JobStatus.PAUSED:
        order.scheduler.resume_job(job_id)
    return moved


# --- dead letters ---


def _group(order: Order) -> JobFilter:
    target = order.form.get("target", "")
    if not target or "error_type" not in order.form:
        raise InvalidJob("a group of dead letters is named by target and error_type")
    return JobFilter(targets=[target], error_type=order.form["error_type"], statuses=[JobStatus.FAILED])


def _retry_group(order: Order) -> Done:
    where = _group(order)
    return Done(_named(order), "/dead-letters", order.scheduler.retry_jobs(where), refusal="none is left")


def _purge_group(order: Order) -> Done:
    where = _group(order)
    count = order.scheduler.dead_letters.purge(where)
    return Done(_named(order), "/dead-letters", count, refusal="none can be deleted")


def _named(order: Order) -> str:
    return f"dead letters of {order.form['target']} with {order.form['error_type'] or 'no error type'}"


# --- queues, limits, breakers ---


def _pause_queue(order: Order) -> Done:
    length = order.form.get("for", "").strip()
    until = _duration(length, "for") if length else None
    changed = order.scheduler.queues.pause(order.names["name"], until=until)
    return Done(f"queue {order.names['name']}", "/queues", int(changed), refusal="it is paused already")


def _resume_queue(order: Order) -> Done:
    changed = order.scheduler.queues.resume(order.names["name"])
    return Done(f"queue {order.names['name']}", "/queues", int(changed), refusal="it is not paused")


def _set_limit(order: Order) -> Done:
    name = order.names.get("name") or order.form.get("name", "").strip()
    concurrent, rate = order.form.get("concurrent", "").strip(), order.form.get("rate", "").strip()
    if bool(concurrent) == bool(rate):
        raise InvalidJob("say how many may run at once, or how many may start per period: one of the two")
    if concurrent:
        order.scheduler.limits.set(name, concurrent=_number(concurrent, "concurrent"))
    else:
        period = _duration(order.form.get("per", "").strip() or "1s", "per")
        order.scheduler.limits.set_rate(name, _number(rate, "rate"), per=period)
    return Done(f"limit {name}", "/limits", 1)


def _number(text: str, name: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise InvalidJob(f"{name}: {text!r} is no number")
    return int(text)


def _remove_limit(order: Order) -> Done:
    changed = order.scheduler.limits.remove(order.names["name"])
    return Done(f"limit {order.names['name']}", "/limits", int(changed), refusal="there is none")


def _open_breaker(order: Order) -> Done:
    changed = order.scheduler.breakers.open(order.names["name"])
    return Done(
        f"breaker {order.names['name']}", "/limits", int(changed), refusal="somebody has opened it already"
    )


def _reset_breaker(order: Order) -> Done:
    changed = order.scheduler.breakers.reset(order.names["name"])
    return Done(f"breaker {order.names['name']}", "/limits", int(changed), refusal="it is closed")


# --- schedules, batches, nodes ---


def _schedule(verb: str, refusal: str) -> Verb:
    def act(order: Order) -> Done:
        found = order.scheduler.schedules.get(order.names["name"])
        if verb == "trigger":
            made = found.trigger()
            return Done(f"schedule {found.name}", path_of("jobs", made.id), 1)
        changed = getattr(found, verb)()
        back = "/schedules" if verb == "remove" else path_of("schedules", found.name)
        return Done(f"schedule {found.name}", back, int(changed), refusal=refusal)

    return Verb(f"schedules.{verb}", f"/schedules/{{name:path}}/{verb}", act)


def _edit_schedule(order: Order) -> Done:
    """What is in the form is changed; no jitter and no arguments can be said by leaving their fields empty."""
    found = order.scheduler.schedules.get(order.names["name"])
    given = {name: order.form.get(name, "").strip() for name in ("expression", "zone")}
    change: dict[str, Any] = {name: text for name, text in given.items() if text}
    if "jitter" in order.form:
        change["jitter"] = _duration(order.form["jitter"].strip() or "0s", "jitter")
    if word := order.form.get("overlap", "").strip():
        change["overlap"] = word.upper()
    if word := order.form.get("misfire", "").strip():
        change["misfire"] = _misfire(word)
    if "arguments" in order.form:
        known = plain_arguments(found.record().spec, order.scheduler.backend)
        wanted = _arguments(order.form["arguments"])
        if wanted != known:
            change["args"], change["kwargs"] = wanted
    changed = found.change(**change)
    return Done(
        f"schedule {found.name}", path_of("schedules", found.name), int(changed), refusal="it is so already"
    )


def _misfire(word: str) -> Misfire:
    rule, _, most = word.lower().partition(":")
    match rule:
        case "skip" if not most:
            return Misfire.skip()
        case "fire_once" if not most:
            return Misfire.fire_once()
        case "catch_up":
            return Misfire.catch_up(_number(most, "misfire")) if most else Misfire.catch_up()
    raise InvalidJob(f"misfire: {word!r} is none of skip, fire_once, catch_up and catch_up:20")


def _arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """``[1, 2]`` or ``{"args": [1], "kwargs": {"region": "eu"}}``."""
    try:
        found = json.loads(text or "[]")
    except ValueError as error:
        raise InvalidJob(f"arguments: this is no JSON: {error}") from None
    if isinstance(found, list):
        return found, {}
    if isinstance(found, dict) and found.keys() <= {"args", "kwargs"}:
        args, kwargs = found.get("args", []), found.get("kwargs", {})
        if isinstance(args, list) and isinstance(kwargs, dict):
            return args, kwargs
    raise InvalidJob('arguments: write [1, 2], or {"args": [1, 2], "kwargs": {"region": "eu"}}')


def _duration(text: str, name: str) -> timedelta:
    try:
        return parse_duration(text)
    except (ValueError, OverflowError) as error:
        raise InvalidJob(f"{name}: {error}") from None


def _cancel_batch(order: Order) -> Done:
    found = order.scheduler.batches.get(order.names["id"])
    changed = found.cancel(f"requested by {order.who}"[:200])
    return Done(f"batch {found.id}", path_of("batches", found.id), int(changed), refusal="it has ended")


def _retry_batch(order: Order) -> Done:
    found = order.scheduler.batches.get(order.names["id"])
    count = found.retry_failed()
    return Done(f"batch {found.id}", path_of("batches", found.id), count, refusal="no item has failed")


def _node(verb: str, refusal: str) -> Verb:
    def act(order: Order) -> Done:
        nodes, name = order.scheduler.nodes, order.names["name"]
        asked = {"drain": nodes.drain, "resume": nodes.resume, "stop": nodes.stop}[verb](name)
        return Done(f"node {name}", "/nodes", int(asked), refusal=refusal)

    return Verb(f"nodes.{verb}", f"/nodes/{{name:path}}/{verb}", act)


def _remove_node(order: Order) -> Done:
    changed = order.scheduler.nodes.remove(order.names["name"])
    return Done(f"node {order.names['name']}", "/nodes", int(changed), refusal="there is no such node")


# --- many jobs ---


def _many(verb: str) -> Verb:
    def act(order: Order) -> Done | Confirmation:
        return change_many(verb, order, _ONE[verb])

    return Verb(f"jobs.{verb}", f"/jobs/{verb}", act)


#: What a bulk verb does to one job, where the scheduler has no verb for many.
_ONE: Mapping[str, Callable[[Order, str], bool]] = {
    "retry": lambda o, i: o.scheduler.retry_job(i),
    "cancel": lambda o, i: o.scheduler.cancel_job(i, reason=f"requested by {o.who}"[:200]),
    "pause": lambda o, i: o.scheduler.pause_job(i),
    "resume": lambda o, i: o.scheduler.resume_job(i),
    "run-now": run_now,
    "set-priority": lambda o, i: o.scheduler.set_priority(i, priority_of(o.form)),
    "delete": lambda o, i: o.scheduler.jobs.delete(i),
}


VERBS: tuple[Verb, ...] = (
    *(_many(verb) for verb in _ONE),
    *_JOB_VERBS,
    Verb("dead-letters.retry", "/dead-letters/retry", _retry_group),
    Verb("dead-letters.purge", "/dead-letters/purge", _purge_group),
    Verb("queues.pause", "/queues/{name:path}/pause", _pause_queue),
    Verb("queues.resume", "/queues/{name:path}/resume", _resume_queue),
    Verb("limits.set", "/limits/set", _set_limit),
    Verb("limits.set", "/limits/{name:path}/set", _set_limit),
    Verb("limits.remove", "/limits/{name:path}/remove", _remove_limit),
    Verb("breakers.open", "/breakers/{name:path}/open", _open_breaker),
    Verb("breakers.reset", "/breakers/{name:path}/reset", _reset_breaker),
    _schedule("pause", "there is no such schedule"),
    _schedule("resume", "it is not paused"),
    _schedule("trigger", ""),
    _schedule("remove", "there is no such schedule"),
    Verb("schedules.edit", "/schedules/{name:path}/edit", _edit_schedule),
    Verb("batches.cancel", "/batches/{id}/cancel", _cancel_batch),
    Verb("batches.retry-failed", "/batches/{id}/retry-failed", _retry_batch),
    _node("drain", "it was asked before"),
    _node("resume", "it takes jobs, or it is stopping"),
    _node("stop", "it was asked before"),
    Verb("nodes.remove", "/nodes/{name:path}/remove", _remove_node),
)
#: Every permission that an action asks for.
PERMISSIONS: tuple[str, ...] = tuple(sorted({verb.permission for verb in VERBS}))

#: What the page says after an action: the words are ours, the address holds only which.
SAID: dict[str, str] = {
    "jobs.retry": "Retried",
    "jobs.cancel": "Canceled",
    "jobs.pause": "Paused",
    "jobs.resume": "Resumed",
    "jobs.run-now": "Due now",
    "jobs.set-priority": "Priority changed",
    "jobs.delete": "Deleted",
    "dead-letters.retry": "Retried",
    "dead-letters.purge": "Deleted",
    "queues.pause": "Queue paused",
    "queues.resume": "Queue resumed",
    "limits.set": "Limit set",
    "limits.remove": "Limit removed",
    "breakers.open": "Breaker opened",
    "breakers.reset": "Breaker reset",
    "schedules.pause": "Schedule paused",
    "schedules.resume": "Schedule resumed",
    "schedules.trigger": "Triggered: this is the run",
    "schedules.remove": "Schedule removed",
    "schedules.edit": "Schedule changed",
    "batches.cancel": "Batch canceled",
    "batches.retry-failed": "Failed items retried",
    "nodes.drain": "Asked to drain: it takes no more jobs from its next beat on",
    "nodes.resume": "Asked to take jobs again",
    "nodes.stop": "Asked to stop: it finishes what runs, and leaves",
    "nodes.remove": "Node removed",
}


def back_to(done: Done, permission: str) -> str:
    """Where a browser goes after an action."""
    path, _, words = done.back.partition("?")
    pairs: list[tuple[str, Any]] = [("did", permission), ("n", done.count)]
    return address(path, pairs) + (f"&{words}" if words else "")
