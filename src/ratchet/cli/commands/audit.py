"""``ratchet audit``: who changed what."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec import structs

from ratchet.cli import parameters as given
from ratchet.cli.output import Output
from ratchet.model.audit import AuditEntry, AuditFilter, AuditOutcome, AuditSource


def audit(
    principal: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="What this person did.", show_default=False)
    ] = None,
    verb: Annotated[
        str | None, typer.Option("--verb", help="Only this verb, such as cancel.", show_default=False)
    ] = None,
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB_ID", help="What was done to this job.", show_default=False),
    ] = None,
    object_: Annotated[
        str | None,
        typer.Option(
            "--object",
            metavar="OBJECT",
            help="What was done to this, such as queue:emails or limit:gateway.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", help="Only through this: api, cli, dashboard or node.", show_default=False),
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option("--outcome", help="Only with this: done, unchanged or refused.", show_default=False),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="At or after this time; 2h means in the last 2 hours.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Before this time; 2h means more than 2 hours ago.",
            show_default=False,
        ),
    ] = None,
    limit: given.Rows = 50,
    cursor: given.Cursor = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Show who changed what, newest first: jobs, queues, limits, breakers, schedules, nodes, the schema."""
    with given.opened(url) as scheduler:
        where = AuditFilter(
            principal=principal,
            verb=verb,
            job_id=None if job is None else given.job_id(scheduler, job),
            object=object_,
            source=None if source is None else given.member(AuditSource, source, "--source"),
            outcome=None if outcome is None else given.member(AuditOutcome, outcome, "--outcome"),
            after=given.moment(since, "--since"),
            before=given.moment(until, "--until"),
        )
        found, following = given.pages(scheduler.audit.find, where, limit, cursor)
    out = Output(as_json=json)
    if json:
        out.document({"entries": [structs.asdict(one) for one in found], "next_cursor": following})
        return
    out.table(
        ("at", "by", "through", "verb", "what", "count", "reason", "outcome"),
        [
            (one.at, one.principal, one.source, one.verb, _about(one), one.count, one.reason, one.outcome)
            for one in found
        ],
        empty="nothing was changed by hand",
    )
    out.more(following)


def _about(entry: AuditEntry) -> str:
    """What the entry is about, in one cell."""
    parts = [str(entry.job_id)] if entry.job_id is not None else []
    if entry.object is not None:
        parts.append(entry.object)
    parts += [f"{name}={value}" for name, value in (entry.filter or {}).items()]
    return ", ".join(parts)
