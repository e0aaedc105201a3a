"""
What migration scripts would do, read from the scripts themselves.

A script is taken apart into actions on tables; the dialect says who waits for each kind of action, and how long. Tests
compare both with what the servers do: every statement of every script is recognized, and the locks are those that are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from msgspec import structs

from ratchet.model.upgrades import LockTime, PlannedChange, PlannedMigration, TableLock, UpgradePlan
from ratchet.stores.sql.beside_writers import beside_writers


class Script(Protocol):
    """A migration, as far as a plan needs it."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def serves(self) -> int | None: ...


class Action(Enum):
    """A kind of statement in migration scripts."""

    CREATE_TABLE = "creates the table"
    CREATE_INDEX = "builds the index"
    BUILD_INDEX = "builds the index, while others write,"
    ADD_COLUMN = "adds the column"
    ADD_CHECK = "adds the check"
    CREATE_TRIGGER = "adds the trigger"
    UNKNOWN = "does something that this page of the plan cannot read"


class Locking(NamedTuple):
    """
    Who waits for an action on a table that exists, how long, and at how many rows per second.

    Rates were measured with 100,000 jobs, on two cores that others used too: with a quiet disk of its own a server is faster.
    """

    waits: TableLock
    lasts: LockTime = LockTime.MOMENT
    rate: float | None = None
    #: What is worth knowing besides.
    remark: str = ""


#: What a product does for each action.
Locks = Mapping[Action, Locking]
#: Where nobody knows, the worst is assumed.
WORST = Locking(TableLock.EVERYBODY, LockTime.COPYING)
_ORDER = list(LockTime)

_PATTERNS = (
    (Action.CREATE_TABLE, re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(?P<table>\w+)")),
    (Action.CREATE_INDEX, re.compile(r"CREATE (?:UNIQUE )?INDEX (?P<name>\w+)\s+ON (?P<table>\w+)")),
    (Action.ADD_COLUMN, re.compile(r"ALTER TABLE (?P<table>\w+) ADD COLUMN (?P<name>\w+)")),
    (Action.ADD_CHECK, re.compile(r"ALTER TABLE (?P<table>\w+) ADD CONSTRAINT (?P<name>\w+) CHECK\b")),
    (Action.CREATE_TRIGGER, re.compile(r"CREATE TRIGGER (?P<name>\w+) .*?\bON (?P<table>\w+)", re.DOTALL)),
)
#: Statements that touch no table that is in use.
_HARMLESS = re.compile(r"CREATE (?:OR REPLACE )?FUNCTION\b")
#: Checks that a block of code adds, which cannot be read as a statement: ``-- adds: ck_one of table_one, ck_two of table_two``
_ADDS = re.compile(r"^-- adds: (.+(?:\n--       .+)*)$", re.MULTILINE)
_ADDED = re.compile(r"(\w+) of (\w+)")
_BLOCK = re.compile(r"DO \$\w*\$")
_PIECE = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|(?P<dollar>\$\w*\$).*?(?P=dollar)|\bBEGIN SELECT\b.*?\bEND\b|;|[^-/'$;B]+|.",
    re.DOTALL,
)


def actions_of(script: str) -> Iterator[tuple[Action, str, str]]:
    """Each action of a script: its kind, the table, and the name of the index, column, check or trigger (or empty)."""
    for index in beside_writers(script):
        yield Action.BUILD_INDEX, index.table, index.name
    for statement in _statements(script):
        if _HARMLESS.match(statement):
            continue
        for action, pattern in _PATTERNS:
            if found := pattern.match(statement):
                names = found.groupdict()
                yield action, names["table"], names.get("name", "")
                break
        else:
            added = _ADDS.search(script) if _BLOCK.match(statement) else None
            if added is None:
                yield Action.UNKNOWN, "", statement.split("\n")[0][:60]
                continue
            for name, table in _ADDED.findall(added[1]):
                yield Action.ADD_CHECK, table, name


def _statements(script: str) -> list[str]:
    found, text = [], ""
    for piece in _PIECE.finditer(script):
        if piece[0] == ";":
            found.append(text.strip())
            text = ""
        elif not piece[0].startswith("--"):
            text += piece[0]
    return [statement for statement in [*found, text.strip()] if statement]


def planned(
    missing: Sequence[Script],
    locks: Locks,
    *,
    newest: int,
    knows_serving: bool,
    transactional: bool,
    rows: Mapping[str, int | None],
) -> UpgradePlan:
    """
    The plan for *missing* scripts on a schema whose newest script has the number *newest*; 0: there is none.

    *transactional*: what a script has locked stays locked until its end.
    """
    migrations = [_planned(one, locks, newest, transactional, rows) for one in missing]
    return UpgradePlan(
        migrations=tuple(migrations), is_new=not newest, restarts=bool(missing) and knows_serving and newest > 0
    )  # fmt: skip


def _planned(
    migration: Script, locks: Locks, newest: int, transactional: bool, rows: Mapping[str, int | None]
) -> PlannedMigration:
    made: set[str] = set()
    changes: dict[tuple[str, str], PlannedChange] = {}
    for action, table, name in actions_of(migration.text):
        if action is Action.CREATE_TABLE:
            made.add(table)
        if table in made:
            if action is Action.CREATE_TABLE:
                locking = locks.get(action, Locking(TableLock.NOBODY))
            else:
                continue  # part of making it
        else:
            locking = locks.get(action, WORST)
        if action is Action.CREATE_TABLE:
            does = action.value
        else:
            does = f"{action.value} {name}" + (f" ({locking.remark})" if locking.remark else "")
        count = None if table in made else rows.get(table, 0)
        rate = locking.rate if locking.lasts is not LockTime.MOMENT else None
        change = PlannedChange(
            table=table,
            does=does,
            waits=locking.waits,
            lasts=locking.lasts,
            rows=count,
            seconds=round(count / rate, 3) if rate and count is not None else None,
        )
        changes[table, does] = change
    found = list(changes.values())
    if transactional and found:
        found = _held_to_the_end(found)
    stays = migration.serves is not None and migration.serves <= newest
    return PlannedMigration(name=migration.name, changes=tuple(found), stays=stays or not newest)


def _held_to_the_end(changes: list[PlannedChange]) -> list[PlannedChange]:
    """What a transaction has locked for a moment stays locked while a later statement of it takes long."""
    held, seconds = LockTime.MOMENT, 0.0
    result = []
    for change in reversed(changes):
        if change.waits is not TableLock.NOBODY:
            held = max(held, change.lasts, key=_ORDER.index)
            seconds += change.seconds or 0.0
            change = structs.replace(change, lasts=held, seconds=round(seconds, 3) if seconds else None)
        result.append(change)
    return result[::-1]
