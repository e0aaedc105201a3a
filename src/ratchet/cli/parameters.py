"""Options that many commands share, and the values they are turned into."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, TypeVar
from uuid import UUID

import typer

from ratchet.cli.exit_codes import Refused
from ratchet.config import DEFAULT_URL, URL_VARIABLE, resolve_url
from ratchet.model.clock import SystemClock
from ratchet.model.durations import parse_duration
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus, JobType, Priority
from ratchet.scheduler import Scheduler
from ratchet.stores import file_of

E = TypeVar("E", bound=Enum)

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
JobId = Annotated[str, typer.Argument(metavar="JOB_ID", help="The job's id, a UUID.", show_default=False)]
JobIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB_ID]...", help="Ids of jobs, UUIDs.", show_default=False),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Show at most this many rows.")]
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
    """A scheduler on the store of *url* that runs no jobs here; closed at the end."""
    scheduler = Scheduler(existing(store_url(url)))
    try:
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
            f"{text!r} is not a {what}: ids are UUIDs such as 0190a5d2-6c1f-7b3e-9a44-2f1c5f0c9e11, and are not abbreviated"
        ) from None


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
    "archived": Archived,
}

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
            default=False if name == "archived" else None,
            annotation=_FILTER_OPTIONS[name],
        )
        for name in names
    ]
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += options if parameter.name == "where" else [parameter]
    return signature.replace(parameters=parameters)


def job_filter(options: Mapping[str, Any]) -> JobFilter:
    """The filter that the values of filter options mean."""
    batch, parent = options.get("batch"), options.get("parent")
    return JobFilter(
        statuses=members(JobStatus, options.get("status"), "--status"),
        tags=options.get("tag") or None,
        targets=options.get("target") or None,
        queue=options.get("queue"),
        types=members(JobType, options.get("type"), "--type"),
        priorities=members(Priority, options.get("priority"), "--priority"),
        business_key=options.get("key"),
        batch_id=None if batch is None else identity(batch, "batch id"),
        parent_id=None if parent is None else identity(parent),
        schedule=options.get("schedule"),
        node_id=options.get("node"),
        created_after=moment(options.get("since"), "--since"),
        created_before=moment(options.get("until"), "--until"),
        error_contains=options.get("error"),
        include_archived=options.get("archived", False),
    )
