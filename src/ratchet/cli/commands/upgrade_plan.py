"""``ratchet db upgrade --check``: what an upgrade of the schema would do, and who would have to wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from tempfile import TemporaryDirectory

from msgspec import structs

from ratchet.cli.exit_codes import ExitCode
from ratchet.cli.output import Output
from ratchet.config import resolve_options, shown_url
from ratchet.model.durations import format_duration
from ratchet.model.upgrades import LockTime, PlannedChange, PlannedMigration, TableLock, UpgradePlan
from ratchet.stores import file_of, file_url, open_store

LASTS = {
    LockTime.MOMENT: "a moment",
    LockTime.READING: "while rows are read",
    LockTime.COPYING: "while rows are copied",
}
#: More new tables than this are not listed one by one.
LISTED = 5


def show_plan(url: str, *, as_json: bool) -> ExitCode:
    """Show what an upgrade of the store of *url* would do; the exit code that says it to scripts."""
    plan = _plan(url)
    code = _code(plan)
    out = Output(as_json=as_json)
    if as_json:
        stays, restarts = plan.stays, plan.restarts
        out.document({"store": shown_url(url), "is_new": plan.is_new, "migrations": plan.migrations, "old_nodes_stay": stays, "old_nodes_may_start": restarts})  # fmt: skip
        return code
    if not plan.migrations:
        out.text(f"{shown_url(url)}: the schema is up to date, nothing would be applied")
        return code
    count = len(plan.migrations)
    out.text(f"{shown_url(url)}: {count} {'migration' if count == 1 else 'migrations'} would be applied")
    out.table(
        ("migration", "table", "rows", "change", "who waits", "how long"),
        [row for migration in plan.migrations for row in _rows(migration)],
    )
    out.text(_advice(plan))
    return code


def _plan(url: str) -> UpgradePlan:
    file = file_of(url)
    with TemporaryDirectory() as folder:
        if file is not None and not file.exists():
            url = file_url(f"{folder}/new.db")  # to look must not make the file
        store = open_store(url, resolve_options())
        try:
            return store.upgrade_plan()
        finally:
            store.close()


def _code(plan: UpgradePlan) -> ExitCode:
    if not plan.migrations:
        return ExitCode.OK
    return ExitCode.UNHEALTHY if plan.stays else ExitCode.STOP_FIRST


def _rows(migration: PlannedMigration) -> list[tuple[object, ...]]:
    new = [change for change in migration.changes if change.rows is None]
    if len(new) > LISTED:
        others = [change for change in migration.changes if change.rows is not None]
        rows = [("", f"{len(new)} tables", "", new[0].does, *_waiting(new[0])), *map(_row, others)]
    else:
        rows = [_row(change) for change in _by_table(migration.changes)]
    if not rows:
        rows = [("", "-", "", "records the version", TableLock.NOBODY.value, "-")]
    return [(migration.name, *rows[0][1:]), *rows[1:]]


def _by_table(changes: Sequence[PlannedChange]) -> list[PlannedChange]:
    """Changes of one table for which the same people wait equally long, as one."""
    found: dict[tuple[object, ...], PlannedChange] = {}
    for change in changes:
        key = (change.table, change.waits, change.lasts)
        if (before := found.get(key)) is None:
            found[key] = change
            continue
        seconds = (before.seconds or 0.0) + (change.seconds or 0.0) or None
        found[key] = structs.replace(before, does=f"{before.does}, {change.does}", seconds=seconds)
    return list(found.values())


def _row(change: PlannedChange) -> tuple[object, ...]:
    return ("", change.table, "new" if change.rows is None else change.rows, change.does, *_waiting(change))


def _waiting(change: PlannedChange) -> tuple[str, str]:
    if change.waits is TableLock.NOBODY:
        return change.waits.value, "-"
    lasts = LASTS[change.lasts]
    if change.seconds is not None:
        lasts += f", about {format_duration(timedelta(seconds=max(round(change.seconds, 1), 0.1)))}"
    return change.waits.value, lasts


def _advice(plan: UpgradePlan) -> str:
    if plan.is_new:
        return "there is no schema yet, so nobody can be in the way"
    if not plan.stays:
        guilty = ", ".join(migration.name for migration in plan.migrations if not migration.stays)
        return f"stop every node and application of the version before first: it does not work after {guilty}"
    stay = "nodes and applications of the version before may stay: those that run go on"
    if plan.restarts:
        return f"{stay}, and others may be started"
    return (
        f"{stay}, but one that is started after the upgrade refuses to, unless you run `ratchet db rollback`"
    )
