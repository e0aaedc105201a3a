"""``ratchet db``: create, upgrade, check and print the schema; roles; sizes and purges. `moving` adds moves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.commands import moving
from ratchet.cli.commands.job_changes import confirmed
from ratchet.cli.commands.upgrade_plan import show_plan
from ratchet.cli.exit_codes import EPILOG, ExitCode
from ratchet.cli.output import Output
from ratchet.cli.people import As, personal, user_name
from ratchet.config import resolve_options, shown_url
from ratchet.model.audit import AuditSource
from ratchet.model.errors import SchemaChanged, SchemaOutOfDate, SchemaTooNew
from ratchet.model.process import shown_size
from ratchet.model.storage import Kept, StorageStats, TableSize
from ratchet.model.store_url import StoreUrl
from ratchet.scheduler import Scheduler
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.stores.grants import Role, grants_for
from ratchet.stores.sql.migrations import PRODUCTS, migrations_of, product_of

commands = typer.Typer(
    help="The database: create, upgrade, check and show the schema; roles; sizes, purges and moves.",
    no_args_is_help=True,
    epilog=EPILOG,
)

#: What a purge does with each kind, in words.
DOES = {
    Kept.JOBS: "ended jobs archived",
    Kept.DEAD_LETTERS: "dead letters archived",
    Kept.LOGS: "log lines deleted",
    Kept.EXECUTIONS: "records of runs deleted",
    Kept.ARCHIVE: "archived jobs deleted",
}


@contextmanager
def _store(url: str) -> Iterator[JobStore]:
    store = open_store(url, resolve_options())
    try:
        yield store
    finally:
        store.close()


@commands.command(epilog=EPILOG)
def upgrade(
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only say what would be applied, who would have to wait for it and how long, and whether nodes of the "
            "version before may stay. Exit code 0: nothing is missing; 4: they may stay; 5: stop them first.",
        ),
    ] = False,
    url: given.Url = None,
    json: given.Json = False,
    as_: As = None,
) -> None:
    """Create or upgrade the schema. Safe to run from several places at once, and again."""
    chosen = given.store_url(url)
    if check:
        raise typer.Exit(show_plan(chosen, as_json=json))
    scheduler = Scheduler(chosen)
    try:
        with scheduler.acting_as(as_ or user_name(), source=AuditSource.CLI):
            applied = scheduler.migrate()
    finally:
        scheduler.close()
    text = f"applied {', '.join(applied)}" if applied else "the schema is up to date"
    Output(as_json=json).say(text, store=shown_url(chosen), applied=applied)


@commands.command(epilog=EPILOG)
def rollback(url: given.Url = None, json: given.Json = False) -> None:
    """
    Let version 0.1.0 start on an upgraded schema, when you have to go back to it.

    Only the list of applied migrations changes, which 0.1.0 refuses to read; tables and jobs stay as they are. Nodes that run
    go on, whatever their version. `ratchet db upgrade` takes it back. Versions after 0.1.0 need none of this.
    """
    chosen = given.existing(given.store_url(url))
    with _store(chosen) as store:
        hidden = store.roll_back_schema()
    text = f"0.1.0 can start on this schema; it does not see {', '.join(hidden)}" if hidden else "nothing to do: 0.1.0 can start on this schema"  # fmt: skip
    Output(as_json=json).say(text, store=shown_url(chosen), hidden=hidden)


@commands.command(epilog=EPILOG)
def status(url: given.Url = None, json: given.Json = False) -> None:
    """Say whether the schema fits this version of Ratchet; exit code 4 if it does not."""
    chosen = given.existing(given.store_url(url))
    problem: str | None = None
    with _store(chosen) as store:
        try:
            store.check_schema()
        except (SchemaOutOfDate, SchemaTooNew, SchemaChanged) as error:
            problem = str(error)
    text = f"{shown_url(chosen)}: {problem or 'the schema is up to date'}"
    Output(as_json=json).say(text, store=shown_url(chosen), ok=problem is None, problem=problem)
    if problem is not None:
        raise typer.Exit(ExitCode.UNHEALTHY)


def _scheme(url: str) -> str:
    """What stands before ://; a URL without it is refused, and not shown: it may hold a password."""
    return url.partition("://")[0] if "://" in url else StoreUrl.of(url).scheme


@commands.command(epilog=EPILOG)
def ddl(
    dialect: Annotated[
        str | None,
        typer.Option(
            "--dialect", help=f"{', '.join(PRODUCTS)}; default: that of the URL.", show_default=False
        ),
    ] = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Print the SQL that creates the schema, in order, for those who apply it with other tools."""
    chosen = product_of(dialect or _scheme(given.store_url(url)))
    scripts = migrations_of(chosen)
    out = Output(as_json=json)
    if json:
        out.document(
            {"dialect": chosen, "scripts": [{"name": each.name, "sql": each.text} for each in scripts]}
        )
        return
    for script in scripts:
        typer.echo(f"-- {script.name}\n{script.text}")


@commands.command(epilog=EPILOG)
def grants(
    roles: Annotated[
        list[Role] | None,
        typer.Argument(help="For which of them; default: all.", show_default=False),
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", help="How the names of the roles begin: PREFIX_worker, and so on.")
    ] = "ratchet",
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """
    Print the statements that make roles with no more rights than a program needs; nothing is connected.

    migrator: ratchet db upgrade. worker: runs jobs, and what people change by hand. submitter: adds jobs, and sees what became of them.
    reader: sees everything. Pipe them into psql, mysql or mongosh as an administrator: the migrator's before the first upgrade, all
    of them again after each one. Then make the role the one of a user of yours.
    """
    found = grants_for(
        given.store_url(url), roles or tuple(Role), prefix=prefix, schema=resolve_options().schema
    )
    if json:
        Output(as_json=True).document(
            [{"role": one.role.value, "name": one.name, "statements": one.statements} for one in found]
        )
        return
    for one in found:
        typer.echo("\n".join(one.statements))


moving.register(commands)

# --- sizes and purges


@commands.command(epilog=EPILOG)
@personal
def stats(url: given.Url = None, json: given.Json = False) -> None:
    """
    Show how many rows and bytes each table has, how long things are kept, and what a purge would move or delete.

    It is cheap on a large store: rows are the database's estimates (~) where it has them, and others are counted up to a limit
    (+). The retention is that of RATCHET_… variables; an app that sets its own in code keeps to that.
    """
    with given.opened(url) as scheduler:
        found = scheduler.storage.stats()
    out = Output(as_json=json)
    if json:
        out.document(found)
        return
    out.table(
        ("table", "rows", "dead", "bytes", "indexes", "index bytes"),
        [
            (
                table.name,
                _rows(table),
                table.dead_rows,
                _size(table.bytes),
                table.indexes,
                _size(table.index_bytes),
            )
            for table in found.size.tables
        ],
        spare=("indexes", "dead"),
    )
    free = found.size.free_bytes
    out.text(
        f"all together {_size(found.size.bytes)}" + (f", of which {_size(free)} hold nothing" if free else "")
    )
    out.heading("retention")
    out.table(("what", "kept for", "a purge would take"), _retention(found))


def _rows(table: TableSize) -> str:
    if table.rows is None:
        return "-"
    return f"{'~' if table.estimated else ''}{table.rows}{'+' if table.more else ''}"


def _size(size: int | None) -> str:
    return "-" if size is None else shown_size(size)


def _retention(found: StorageStats) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for kind, keep in found.retention.items():
        old = found.old.get(kind)
        takes = "-" if old is None else f"{old.count}{'+' if old.more else ''} {DOES[kind]}"
        rows.append((kind.value.replace("_", " "), "ever" if keep is None else keep, takes))
    return rows


@commands.command(epilog=EPILOG)
@personal
def purge(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help="Take what is older than this, instead of by the retention of each kind; what is kept for ever stays.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count, up to a limit, and change nothing.")
    ] = False,
    yes: given.Yes = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """
    Do now what nodes do with time: archive ended jobs, delete old archived jobs, records of runs and log lines.

    It works in small portions beside running workers, and what it has done stays done when it is interrupted. PostgreSQL,
    MySQL and MongoDB use the room again for new rows; the files themselves do not shrink.
    """
    age = None if older_than is None else timedelta(seconds=given.duration(older_than, "--older-than"))
    if age is not None and not age:
        raise typer.BadParameter("it has to be more than nothing", param_hint="--older-than")
    out = Output(as_json=json)
    with given.opened(url) as scheduler:
        if dry_run:
            found = scheduler.storage.purge(age, dry_run=True)
            out.say(f"a purge would take: {_told(found)}", **_facts(found), dry_run=True)
            return
        by = "by the retention in force" if age is None else f"older than {older_than}"
        if not confirmed(f"archive and delete what is old, {by}", yes=yes, out=out):
            return
        done = scheduler.storage.purge(age, on_progress=_progress(as_json=json))
        if not json and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2K")
    out.say(f"purged: {_told(done)}", **_facts(done))


def _told(found: dict[Kept, int]) -> str:
    return ", ".join(f"{count} {DOES[kind]}" for kind, count in found.items() if count) or "nothing"


def _facts(found: dict[Kept, int]) -> dict[str, int]:
    return {kind.value: count for kind, count in found.items()}


def _progress(*, as_json: bool) -> Callable[[Kept, int], None]:
    """One line on a terminal that changes; nothing elsewhere."""
    if as_json or not sys.stderr.isatty():
        return lambda kind, count: None

    def show(kind: Kept, count: int) -> None:
        sys.stderr.write(f"\r\x1b[2K{count} {DOES[kind]} …")
        sys.stderr.flush()

    return show
