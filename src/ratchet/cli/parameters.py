"""Options that many commands share, and the values they are turned into."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import UUID

import typer

from ratchet.cli.exit_codes import NothingFound, Refused
from ratchet.cli.people import person, user_name
from ratchet.cli.user_app import load_scheduler
from ratchet.config import DEFAULT_URL, URL_VARIABLE, resolve_url
from ratchet.model.audit import AuditSource
from ratchet.model.clock import SystemClock
from ratchet.model.durations import parse_duration
from ratchet.model.errors import InvalidJob
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus, JobType, Priority
from ratchet.model.traces import checked_trace_id
from ratchet.scheduler import Scheduler
from ratchet.scheduler.core import Core
from ratchet.stores import file_of

E = TypeVar("E", bound=Enum)

#: Digits that an abbreviated id has, at least.
SHORTEST_PREFIX = 4
#: Rows that one query reads, at most.
PAGE = 1000
#: Targets that a message lists.
NAMED_TARGETS = 10

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        show_default=False,
        help=f"The store, such as postgresql://app@db/shop. Default: ${URL_VARIABLE}, else {DEFAULT_URL}.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
JobId = Annotated[
    str,
    typer.Argument(
        metavar="JOB_ID",
        help="The job's id, a UUID, or as much of its beginning as no other has.",
        show_default=False,
    ),
]
JobIds = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB_ID]...", help="Ids of jobs, UUIDs, or their beginnings.", show_default=False
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Show at most this many rows.")]
Rows = Annotated[
    int, typer.Option("--limit", min=1, help="Show at most this many rows; more than 1000 are read in pages.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say how many jobs that would be, and change nothing.")
]
Cursor = Annotated[
    str | None, typer.Option("--cursor", help="Continue where the previous page ended.", show_default=False)
]
Statuses = Annotated[
    list[str] | None,
    typer.Option("--status", metavar="STATUS", help="Only this status; may be repeated.", show_default=False),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="TAG",
        help="Only with this tag; if repeated, only with all of them.",
        show_default=False,
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target", metavar="TARGET", help="Only jobs of this function; may be repeated.", show_default=False
    ),
]
Queue = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="Only of this queue.", show_default=False)
]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="Only of this type; may be repeated.", show_default=False),
]
Priorities = Annotated[
    list[str] | None,
    typer.Option(
        "--priority", metavar="PRIORITY", help="Only of this priority; may be repeated.", show_default=False
    ),
]
Key = Annotated[str | None, typer.Option("--key", help="Only with this business key.", show_default=False)]
Batch = Annotated[
    str | None, typer.Option("--batch", metavar="ID", help="Only of this batch.", show_default=False)
]
Parent = Annotated[
    str | None, typer.Option("--parent", metavar="ID", help="Only children of this job.", show_default=False)
]
ScheduleName = Annotated[
    str | None,
    typer.Option("--schedule", metavar="NAME", help="Only runs of this schedule.", show_default=False),
]
Node = Annotated[
    str | None, typer.Option("--node", metavar="NODE_ID", help="Only on this node.", show_default=False)
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Created at or after this time; 2h means in the last 2 hours.",
        show_default=False,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Created before this time; 2h means more than 2 hours ago.",
        show_default=False,
    ),
]
ErrorText = Annotated[
    str | None,
    typer.Option("--error", metavar="TEXT", help="Only if the error contains this text.", show_default=False),
]
Archived = Annotated[bool, typer.Option("--archived", help="Search the archive too.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


# --- the store


@contextmanager
def opened(url: str | None) -> Iterator[Scheduler]:
    """A scheduler on the store of *url* that runs no jobs here, on behalf of who gives the command; closed at the end."""
    who = person.get()
    if who.app is None:
        scheduler = Scheduler(existing(store_url(url)))
        if isinstance(scheduler.backend, Core):
            scheduler.backend.show_sealed()
    elif url is not None:
        raise typer.BadParameter("--app has a store of its own; leave --url out", param_hint="--url")
    else:
        scheduler = load_scheduler(who.app, str(Path.cwd()))
    try:
        with scheduler.acting_as(who.name or user_name(), source=AuditSource.CLI):
            yield scheduler
    finally:
        scheduler.close()


def store_url(url: str | None) -> str:
    """*url*, else the one in the environment, else the default; like `resolve_url`, but without its log line."""
    logger = logging.getLogger("ratchet")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        return resolve_url(url)
    finally:
        logger.setLevel(level)


def existing(url: str) -> str:
    """*url*, unless it names a file that does not exist: a command that only looks must not create one."""
    path = file_of(url)
    if path is not None and not path.exists():
        raise Refused(
            f"there is no database at {path.absolute()}; say which store is meant with --url or "
            f"{URL_VARIABLE}, or create this one with: ratchet db upgrade"
        )
    return url


# --- words into values


def member(kind: type[E], word: str, option: str) -> E:
    """The member of *kind* that *word* names, whatever its case."""
    try:
        return kind[word.strip().upper()]
    except KeyError:
        known = ", ".join(kind.__members__)
        raise typer.BadParameter(f"{word!r} is none of {known}", param_hint=option) from None


def members(kind: type[E], words: list[str] | None, option: str) -> list[E] | None:
    """The members that *words* name; one word may hold several, separated by commas."""
    if not words:
        return None
    return [member(kind, word, option) for text in words for word in text.split(",")]


def identity(text: str, what: str = "job id") -> UUID:
    """*text* as an id."""
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a {what}: ids are UUIDs such as 0190a5d2-6c1f-7b3e-9a44-2f1c5f0c9e11"
        ) from None


def job_id(scheduler: Scheduler, text: str) -> UUID:
    """The id that *text* is, or the one job's whose id begins with it."""
    digits = text.strip().replace("-", "").lower()
    if len(digits) >= 32 or len(digits) < SHORTEST_PREFIX or not set(digits) <= set("0123456789abcdef"):
        return identity(text)
    # Jobs are found newest first, by id: a page that begins behind the last id with this prefix is a range of the key.
    behind = str(UUID(digits.ljust(32, "f")))
    page = scheduler.jobs.find(JobFilter(include_archived=True), limit=4, cursor=behind)
    found = [str(job.id) for job in page if job.id.hex.startswith(digits)]
    if not found:
        raise NothingFound(f"there is no job whose id begins with {text}; `ratchet jobs list` shows ids")
    if len(found) > 1:
        named = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise typer.BadParameter(
            f"the ids of several jobs begin with {text}: {named}; give more of it", param_hint="JOB_ID"
        )
    return UUID(found[0])


class Abbreviated(str):
    """The beginning of an id, in a filter whose store is not open yet."""


def abbreviated(text: str, what: str = "job id") -> Any:
    """*text* as an id; or as it is, to be completed by `with_full_names`, if it can be the beginning of one."""
    digits = text.strip().replace("-", "").lower()
    if SHORTEST_PREFIX <= len(digits) < 32 and set(digits) <= set("0123456789abcdef"):
        return Abbreviated(digits)
    return identity(text, what)


def with_full_names(scheduler: Scheduler, where: JobFilter) -> JobFilter:
    """*where*, with whole ids, and the full names of targets that were given as bare names of functions (``charge``)."""
    found: dict[str, Any] = {}
    for name in ("parent_id", "superseded_by"):
        if isinstance(text := getattr(where, name), Abbreviated):
            found[name] = job_id(scheduler, text)
    if isinstance(text := getattr(where, "batch_id"), Abbreviated):  # noqa: B009  # typed as an id, which it is not yet
        found["batch_id"] = _batch_id(scheduler, text)
    if where.node_id is not None:
        nodes = [node.node_id for node in scheduler.backend.store.nodes(counting=False)]
        meant = [node for node in nodes if node.startswith(where.node_id) or node.endswith(where.node_id)]
        if where.node_id not in nodes and len(meant) == 1:  # one that is forgotten is known by its jobs alone
            found["node_id"] = meant[0]
    return _with_full_targets(scheduler, dataclasses.replace(where, **found) if found else where)


def _batch_id(scheduler: Scheduler, digits: str) -> UUID:
    recent = [record.batch_id for record in scheduler.backend.store.batches(limit=PAGE)]
    found = [batch_id for batch_id in recent if batch_id.hex.startswith(digits)]
    if len(found) != 1:
        raise NothingFound(
            f"{len(found) or 'none'} of the newest {PAGE} batches {'have ids that begin' if found else 'has an id that begins'} "
            f"with {digits}; give the whole id"
        )
    return found[0]


def _with_full_targets(scheduler: Scheduler, where: JobFilter) -> JobFilter:
    if not where.targets or all(":" in name or "." in name for name in where.targets):
        return where
    known = _known_targets(scheduler)
    targets: list[str] = []
    for name in where.targets:
        meant = _meant(name, known)
        if not meant:  # what failed last night may lie behind thousands of newer jobs
            known |= {group.target for group in scheduler.dead_letters.summary()}
            meant = _meant(name, known)
        if not meant:
            some = ", ".join(sorted(known)[:NAMED_TARGETS]) or "none"
            raise typer.BadParameter(
                f"no job of late has the target {name!r}; targets are written module:function. Known: {some}",
                param_hint="--target",
            )
        targets += meant
    return dataclasses.replace(where, targets=targets)


def _meant(name: str, known: set[str]) -> list[str]:
    return sorted(target for target in known if name in (target, target.rpartition(":")[2]))


def _known_targets(scheduler: Scheduler) -> set[str]:
    """The targets of the newest jobs, and of the functions that nodes say they have."""
    recent = {job.target for job in scheduler.jobs.find(limit=PAGE)}
    nodes = scheduler.backend.store.nodes(counting=False)
    return recent | {target for node in nodes for target in node.about.targets}


def pages(
    find: Callable[..., Any], where: Any, limit: int, cursor: str | None
) -> tuple[list[Any], str | None]:
    """Up to *limit* results of a search, read in pages; and where the next page begins."""
    items: list[Any] = []
    while len(items) < limit:
        page = find(where, limit=min(PAGE, limit - len(items)), cursor=cursor)
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return items, cursor


def duration(text: str, option: str) -> float:
    """Seconds of a duration such as 30s or 5m."""
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def moment(text: str | None, option: str) -> datetime | None:
    """A time from ISO 8601 (this machine's zone unless it names one), or a duration before now."""
    if text is None:
        return None
    try:
        return SystemClock().now() - parse_duration(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a time (2026-03-01T12:00) nor a duration (2h)", param_hint=option
        ) from None
    return at.astimezone(UTC)


# --- filters

#: The options that choose jobs, by the name of the command's parameter.
Caller = Annotated[
    str | None, typer.Option("--caller", metavar="NAME", help="Submitted on behalf of this caller.")
]
SupersededBy = Annotated[
    str | None, typer.Option("--superseded-by", metavar="ID", help="Replaced by this job.")
]
Argument = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="NAME=VALUE",
        help="Has this argument: 0=42 is the first one, region=eu one given by name. Reads each job that matches the rest.",
    ),
]
TraceId = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="ID",
        help="Submitted in this trace: its id, or a traceparent. Reads each job that matches the rest.",
    ),
]
Parked = Annotated[bool, typer.Option("--parked", help="Waits for a node that can run it.")]
Truncated = Annotated[bool, typer.Option("--truncated", help="Its result was too large to keep.")]

_FILTER_OPTIONS: dict[str, Any] = {
    "status": Statuses,
    "tag": Tags,
    "target": Targets,
    "queue": Queue,
    "type": Types,
    "priority": Priorities,
    "key": Key,
    "batch": Batch,
    "parent": Parent,
    "schedule": ScheduleName,
    "node": Node,
    "since": Since,
    "until": Until,
    "error": ErrorText,
    "caller": Caller,
    "superseded_by": SupersededBy,
    "arg": Argument,
    "trace": TraceId,
    "parked": Parked,
    "truncated": Truncated,
    "archived": Archived,
}
_FLAGS = frozenset({"archived", "parked", "truncated"})

NO_FILTER = JobFilter()


def filtered(names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """
    Give a command the filter options *names*, and pass it what they say as one `JobFilter`, ``where``.

    Typer reads a command's options from its signature: there they stand in the place of ``where``.
    """
    chosen = names.split()

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            where = job_filter({name: values.pop(name) for name in chosen})
            command(**values, where=where)

        run.__signature__ = _with_filter_options(command, chosen)  # type: ignore[attr-defined]
        return run

    return decorate


def _with_filter_options(command: Callable[..., None], names: list[str]) -> inspect.Signature:
    signature = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=False if name in _FLAGS else None,
            annotation=_FILTER_OPTIONS[name],
        )
        for name in names
    ]
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += options if parameter.name == "where" else [parameter]
    return signature.replace(parameters=parameters)


def arguments(given: list[str] | None) -> dict[str, Any] | None:
    """What ``--arg NAME=VALUE`` means: the value is JSON, or else text."""
    found: dict[str, Any] = {}
    for one in given or ():
        name, equals, text = one.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"--arg takes NAME=VALUE, such as 0=42 or region=eu, not {one!r}")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found or None


def trace_id(given: str | None) -> str | None:
    """The id that ``--trace`` names."""
    try:
        return None if given is None else checked_trace_id(given, "it")
    except InvalidJob as error:
        raise typer.BadParameter(str(error), param_hint="--trace") from None


def job_filter(options: Mapping[str, Any]) -> JobFilter:
    """The filter that the values of filter options mean."""
    batch, parent, superseded = (options.get(name) for name in ("batch", "parent", "superseded_by"))
    return JobFilter(
        statuses=members(JobStatus, options.get("status"), "--status"),
        tags=options.get("tag") or None,
        targets=options.get("target") or None,
        queue=options.get("queue"),
        types=members(JobType, options.get("type"), "--type"),
        priorities=members(Priority, options.get("priority"), "--priority"),
        business_key=options.get("key"),
        batch_id=None if batch is None else abbreviated(batch, "batch id"),
        parent_id=None if parent is None else abbreviated(parent),
        schedule=options.get("schedule"),
        node_id=options.get("node"),
        created_after=moment(options.get("since"), "--since"),
        created_before=moment(options.get("until"), "--until"),
        error_contains=options.get("error"),
        caller=options.get("caller"),
        superseded_by=None if superseded is None else abbreviated(superseded),
        args=arguments(options.get("arg")),
        trace_id=trace_id(options.get("trace")),
        parked=True if options.get("parked") else None,
        truncated=True if options.get("truncated") else None,
        include_archived=options.get("archived", False),
    )
