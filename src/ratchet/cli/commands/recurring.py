"""``ratchet recurring``: schedules and their runs; pause, trigger and remove them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from ratchet.api.recurring import Schedule, run_facts
from ratchet.cli import parameters as given
from ratchet.cli.commands.job_changes import confirmed
from ratchet.cli.exit_codes import EPILOG, Refused
from ratchet.cli.output import Output, ago
from ratchet.model.composition import ScheduleSpec
from ratchet.model.durations import format_duration
from ratchet.model.job import DEFAULT_QUEUE
from ratchet.model.status import Priority

commands = typer.Typer(
    help="Recurring jobs: schedules and their runs; pause, trigger and remove them.",
    no_args_is_help=True,
    epilog=EPILOG,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.", show_default=False)]


@commands.command("list", epilog=EPILOG)
def list_(
    tag: Annotated[str | None, typer.Option("--tag", help="Only schedules whose runs have this tag.")] = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """List schedules and when each fires next."""
    with given.opened(url) as scheduler:
        found = [schedule.record() for schedule in scheduler.schedules.list(tag=tag)]
        out = Output(as_json=json)
        if json:
            out.document({"schedules": [_facts(record) for record in found]})
            return
        now = scheduler.backend.now()
        out.table(
            ("name", "when", "zone", "target", "next", "last", "paused", "runs"),
            [
                (
                    record.spec.name,
                    record.spec.expression,
                    record.spec.zone,
                    record.spec.target,
                    ago(record.next_fire_at, now),
                    ago(record.last_fire_at, now),
                    record.paused,
                    _runs(record.spec),
                )
                for record in found
            ],
            empty="there are no schedules",
            spare=("runs", "last", "zone", "target"),
        )


def _runs(spec: ScheduleSpec) -> str:
    """What is special about the runs of a schedule, in a few words."""
    facts = run_facts(spec)
    plain = {"priority": Priority.NORMAL, "queue": DEFAULT_QUEUE}
    said = {name: value for name, value in facts.items() if value and value != plain.get(name)}
    return ", ".join(f"{name}={_shown(value)}" for name, value in said.items())


def _shown(value: Any) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Priority):
        return value.name
    return "+".join(value) if isinstance(value, list) else str(value)


def _facts(record: Any) -> dict[str, Any]:
    """A schedule for machines; of the template of its jobs only what people have said about them."""
    spec = record.spec
    return {
        "name": spec.name,
        "expression": spec.expression,
        "zone": spec.zone,
        "target": spec.target,
        "misfire": spec.misfire,
        "overlap": spec.overlap,
        "starts_at": spec.starts_at,
        "ends_at": spec.ends_at,
        "jitter": spec.jitter,
        **run_facts(spec),
        "declared": spec.declared,
        "paused": record.paused,
        "next_fire_at": record.next_fire_at,
        "last_fire_at": record.last_fire_at,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    }


@commands.command(epilog=EPILOG)
def show(
    name: Name,
    count: Annotated[int, typer.Option("--next", min=1, max=1000, help="How many fire times to show.")] = 10,
    limit: given.Limit = 10,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Show one schedule: what it does, its next fire times, and what became of the last ones."""
    with given.opened(url) as scheduler:
        schedule = scheduler.schedules.get(name)
        record = schedule.record()
        upcoming = schedule.next_fires(count)
        fired = schedule.fires(limit)
        out = Output(as_json=json)
        if json:
            out.document({"schedule": _facts(record), "next": upcoming, "fires": fired})
            return
        out.details(_facts(record))
        now = scheduler.backend.now()
        out.heading("Next")
        out.table(("at", "in"), [(at, ago(at, now)) for at in upcoming], empty="it has ended")
        out.heading("Last")
        out.table(
            ("at", "outcome", "job", "reason"),
            [(fire.fire_at, fire.outcome, fire.job_id, fire.reason) for fire in fired],
            empty="it has not fired yet",
        )


@commands.command(epilog=EPILOG)
def pause(name: Name, url: given.Url = None, json: given.Json = False) -> None:
    """Stop a schedule from firing, until it is resumed."""
    with given.opened(url) as scheduler:
        scheduler.schedules.get(name).pause()
        Output(as_json=json).say(f"paused {name}", paused=name)


@commands.command(epilog=EPILOG)
def resume(name: Name, url: given.Url = None, json: given.Json = False) -> None:
    """Let a paused schedule fire again, from now on."""
    with given.opened(url) as scheduler:
        schedule: Schedule = scheduler.schedules.get(name)
        if not schedule.resume():
            raise Refused(f"schedule {name!r} is not paused")
        at = schedule.next_fire_at
        shown = "never again" if at is None else ago(at, scheduler.backend.now())
        Output(as_json=json).say(f"resumed {name}; it fires {shown}", resumed=name, next_fire_at=at)


@commands.command(epilog=EPILOG)
def trigger(name: Name, url: given.Url = None, json: given.Json = False) -> None:
    """Run a schedule's job once, now, outside its timetable."""
    with given.opened(url) as scheduler:
        handle = scheduler.schedules.get(name).trigger()
        Output(as_json=json).say(f"triggered {name}: job {handle.id}", triggered=name, job_id=handle.id)


@commands.command(epilog=EPILOG)
def remove(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The schedule's name.", show_default=False)
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", help="Instead of NAME: all schedules whose runs have this tag.")
    ] = None,
    yes: given.Yes = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Forget a schedule; its runs stay. A schedule that is declared in code comes back when a worker starts."""
    if (name is None) == (tag is None):
        raise typer.BadParameter("give the schedule's NAME, or --tag TAG for several")
    out = Output(as_json=json)
    with given.opened(url) as scheduler:
        found = scheduler.schedules.list(tag=tag) if name is None else [scheduler.schedules.get(name)]
        named = ", ".join(schedule.name for schedule in found)
        if found and not confirmed(f"remove {named}", yes=yes, out=out, can_look=False):
            return
        removed = [schedule.name for schedule in found if schedule.remove()]
        if name is not None:
            out.say(f"removed {name}", removed=name)
            return
        shown = f"removed {', '.join(removed)}" if removed else f"no schedule has the tag {tag!r}"
        out.say(shown, removed=removed)
