"""Commands that destroy something ask first; where nobody can be asked they refuse without ``--yes``."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ratchet.scheduler import Scheduler
from tests.unit.cli import errands
from tests.unit.cli.conftest import CommandLine, World
from tests.unit.cli.test_command_line import ALL

#: Words of commands that destroy: a new command of such a name has to be looked at here.
WORDS = {"delete", "cancel", "purge", "remove", "move", "drop", "forget", "reset", "clear", "rollback"}
#: They have such a name and destroy nothing: a breaker is closed, and an upgrade is hidden from 0.1.0 until it is made again.
HARMLESS = {"breakers reset", "db rollback"}
#: Every command that asks, with words that mean something there is.
ASKS = {
    "jobs cancel": "--tag later",
    "jobs delete": "--tag later",
    "jobs retry": "--tag billing",
    "jobs set-priority": "HIGH --tag later",
    "dlq retry": "--all",
    "dlq purge": "--all",
    "limits remove": "gateway",
    "recurring remove": "nightly",
    "db purge": "--older-than 1us",
    "db move": "--to sqlite:///{folder}/other.db",
    "db export": "{folder}/jobs.ndjson",
    "db after-restore": "",
}


def named(name: str) -> set[str]:
    """The options of a command."""
    return {option for parameter in ALL[tuple(name.split())].params for option in parameter.opts}


def rows(path: Path) -> list[str]:
    """Everything that is in the store."""
    with sqlite3.connect(path) as connection:
        found = list(connection.iterdump())
    connection.close()
    return found


def test_every_command_that_destroys_is_here() -> None:
    """Whatever has ``--yes``, and whatever is named so that it should have it."""
    commands = {" ".join(path) for path in ALL}
    assert {name for name in commands if "--yes" in named(name)} == set(ASKS)
    destroying = {name for name in commands if WORDS & set(name.replace("-", " ").split())}
    assert destroying - HARMLESS <= set(ASKS)


@pytest.mark.parametrize("name", ASKS)
def test_it_refuses_where_nobody_can_be_asked(
    name: str, ratchet: CommandLine, scheduler: Scheduler, world: World, tmp_path: Path
) -> None:
    """Without a terminal and with --json: the message says what would be done and how, and not one row has changed."""
    scheduler.schedule(3600, errands.greet, "eve").with_tags("later").submit()
    scheduler.limits.set("gateway", concurrent=2)
    scheduler.schedule_recurring("0 2 * * *", errands.greet, "ann", name="nightly")
    before = rows(tmp_path / "jobs.db")
    words = [*name.split(), *ASKS[name].format(folder=tmp_path).split()]
    for more, where in (([], "without a terminal"), (["--json"], "with --json")):
        refused = ratchet(*words, *more, code=1).stderr
        assert f"{where} nobody can be asked, and this would " in refused
        assert "repeat with --yes" in refused
        assert ("--dry-run" in refused) == ("--dry-run" in named(name))
    assert rows(tmp_path / "jobs.db") == before
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"jobs.db"}
