"""Who gives a command: the audit log has the name, and the authorizer of the app decides about each command."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
import typer
from typer.testing import CliRunner, Result

from ratchet import AuditFilter, Permission, Scheduler
from ratchet.cli import people
from ratchet.cli.app import COMMANDS, PERSONAL, app
from ratchet.cli.commands import database
from ratchet.contrib.encryption import Keyring
from ratchet.model.audit import AuditEntry
from ratchet.model.cluster import NodeSpec
from ratchet.spi.store import JobStore
from tests.unit.cli import errands, guarded_app
from tests.unit.cli.conftest import CommandLine, World

P = Permission


@dataclass(frozen=True)
class Row:
    """What a command asks for, its words, and as what it is written down: None if it only looks."""

    permission: Permission
    words: str
    verb: str | None = None
    narrows: bool = False  # a refusal leaves jobs out; the command itself succeeds


#: ``{pending}`` and the like stand for ids.
ROWS: dict[str, Row] = {
    "jobs submit": Row(P.SUBMIT, 'tests.unit.cli.errands:greet --args ["dan"]'),
    "jobs list": Row(P.VIEW, "", narrows=True),
    "jobs show": Row(P.VIEW, "{pending}"),
    "jobs explain": Row(P.VIEW, "{pending}"),
    "jobs logs": Row(P.VIEW, "{failed}"),
    "jobs cancel": Row(P.CANCEL, "{pending}", "cancel"),
    "jobs pause": Row(P.PAUSE, "{pending}", "pause"),
    "jobs resume": Row(P.RESUME, "{paused}", "resume"),
    "jobs run-now": Row(P.RESCHEDULE, "{pending}", "reschedule"),
    "jobs set-priority": Row(P.SET_PRIORITY, "{pending} HIGH", "set_priority"),
    "jobs delete": Row(P.DELETE, "{pending} --yes", "delete"),
    "jobs retry": Row(P.RETRY, "{failed}", "retry"),
    "dlq list": Row(P.VIEW, "", narrows=True),
    "dlq retry": Row(P.RETRY, "{failed}", "retry"),
    "dlq summary": Row(P.LIST, ""),
    "dlq purge": Row(P.DELETE, "--tag billing --yes", "purge", narrows=True),
    "dlq alerts": Row(P.LIST, ""),
    "queues list": Row(P.LIST, ""),
    "queues pause": Row(P.QUEUES, "emails --new", "pause"),
    "queues resume": Row(P.QUEUES, "closed", "resume"),
    "limits list": Row(P.LIST, ""),
    "limits show": Row(P.LIST, "gateway"),
    "limits set": Row(P.LIMITS, "gateway --concurrent 3", "set"),
    "limits remove": Row(P.LIMITS, "gateway --yes", "remove"),
    "breakers list": Row(P.LIST, ""),
    "breakers open": Row(P.BREAKERS, "new", "open"),
    "breakers reset": Row(P.BREAKERS, "broken", "reset"),
    "recurring list": Row(P.LIST, ""),
    "recurring show": Row(P.LIST, "yearly"),
    "recurring pause": Row(P.SCHEDULES, "yearly", "pause"),
    "recurring resume": Row(P.SCHEDULES, "resting", "resume"),
    "recurring trigger": Row(P.SCHEDULES, "yearly", "trigger"),
    "recurring remove": Row(P.SCHEDULES, "yearly --yes", "remove"),
    "nodes list": Row(P.LIST, ""),
    "nodes drain": Row(P.NODES, "busy --wait 0", "drain"),
    "nodes resume": Row(P.NODES, "drained --wait 0", "resume"),
    "nodes stop": Row(P.NODES, "busy --wait 0", "stop"),
    "db stats": Row(P.LIST, ""),
    "db purge": Row(P.STORAGE, "--older-than 1us --yes", "purge"),
    "top": Row(P.LIST, "--once"),
    "health": Row(P.LIST, ""),
    "audit": Row(P.AUDIT, ""),
}


def test_every_command_has_a_permission() -> None:
    """Each command that does what the API's verbs do is in the table, and nothing else is."""
    found: set[str] = set()
    for name in PERSONAL - {"dashboard"}:  # it serves until it is stopped; who asks is told in its own tests
        entry = COMMANDS[name]
        command = getattr(importlib.import_module(f"ratchet.cli.{entry.module}"), entry.name)
        if not isinstance(command, typer.Typer):
            found.add(name)
            continue
        for one in command.registered_commands:
            assert one.callback is not None
            found.add(f"{name} {one.name or one.callback.__name__}")
    for one in database.commands.registered_commands:
        assert one.callback is not None
        if {"as_", "app"} <= set(inspect.signature(one.callback).parameters):
            found.add(f"db {one.callback.__name__}")
    assert found == set(ROWS)


@pytest.fixture
def guarded(url: str, scheduler: Scheduler, world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The same store, through a scheduler with roles."""
    scheduler.limits.set("gateway", concurrent=2)
    scheduler.breakers.open("broken")
    scheduler.queues.pause("closed")
    scheduler.schedule_recurring("0 0 1 1 *", errands.greet, "x", name="yearly")
    scheduler.schedule_recurring("0 0 1 1 *", errands.greet, "x", name="resting").pause()
    for name in ("busy", "drained"):
        register(scheduler.store, name)
    scheduler.nodes.drain("drained")
    made = Scheduler(url, allow=["tests.unit.cli.errands"], authorizer=guarded_app.by_role)
    monkeypatch.setattr(guarded_app, "scheduler", made, raising=False)
    yield world
    made.close()


def register(store: JobStore, name: str) -> None:
    """A node that is alive for an hour."""
    made = NodeSpec(
        node_id=name,
        name=name,
        host="h",
        pid=1,
        version="0",
        beat_interval=timedelta(seconds=1),
        silence=timedelta(hours=1),
    )
    store.register(made, now=store.database_time())


def entries(scheduler: Scheduler) -> list[AuditEntry]:
    """What commands have left, newest first."""
    return scheduler.audit.find(AuditFilter(source="cli"), limit=100).items


def command(name: str, world: World, *more: str) -> Result:
    ids = {one: str(getattr(world, one)) for one in ("pending", "paused", "failed")}
    words = [*name.split(), *ROWS[name].words.format(**ids).split(), *more]
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
@pytest.mark.parametrize("name", ROWS)
def test_each_command_for_each_role(scheduler: Scheduler, guarded: World, name: str, role: str) -> None:
    """What the role may not do is one line on stderr with exit code 1, and in the audit log; the rest is done."""
    row, permitted = ROWS[name], ROWS[name].permission in guarded_app.ROLES[role]
    result = command(name, guarded, "--app", "tests.unit.cli.guarded_app", "--as", role)
    left = [(one.principal, one.verb, one.outcome) for one in entries(scheduler)]
    if permitted:
        assert result.exit_code in (0, 4), result.output  # 4: not well, as no node runs
        assert left == ([(role, row.verb, "done")] if row.verb else [])
    elif row.narrows:
        assert result.exit_code == 0, result.output
        assert left == ([(role, row.verb, "unchanged")] if row.verb else [])
    else:
        assert result.exit_code == 1, result.output
        assert f"'{role}' may not {row.permission}" in result.stderr
        assert [(one[0], one[2]) for one in left] == [(role, "refused")]


def test_the_user_of_the_system_is_named(ratchet: CommandLine, scheduler: Scheduler, world: World) -> None:
    """Without --as it is who runs the command."""
    ratchet("jobs", "cancel", world.pending)
    [one] = entries(scheduler)
    assert (one.principal, one.job_id, one.verb) == (people.user_name(), world.pending, "cancel")


def test_who_is_named_before_the_command(ratchet: CommandLine, scheduler: Scheduler, guarded: World) -> None:
    """``ratchet nodes --as ann drain`` is Ann's, too; what stands at the command itself goes first."""
    ratchet("nodes", "--as", "ann", "drain", "busy", "--wait", "0")
    ratchet("nodes", "--as", "ann", "resume", "busy", "--wait", "0", "--as", "bob")
    ratchet("nodes", "list")
    ratchet("nodes", "stop", "busy", "--wait", "0")
    names = [(one.verb, one.principal) for one in entries(scheduler)]
    assert names == [("stop", people.user_name()), ("resume", "bob"), ("drain", "ann")]


def test_the_log_is_shown_and_searched(ratchet: CommandLine, scheduler: Scheduler, world: World) -> None:
    """A table for people, a document for machines, and filters that find."""
    ratchet("jobs", "cancel", world.pending, "--as", "ann")
    ratchet("queues", "pause", "emails", "--new", "--as", "bob")
    shown = ratchet("audit").stdout
    assert "queue:emails" in shown
    assert str(world.pending) in shown
    [one] = ratchet.json("audit", "--by", "ann")["entries"]
    assert (one["verb"], one["job_id"], one["outcome"]) == ("cancel", str(world.pending), "done")
    for words in (
        ["--verb", "pause", "--source", "cli"],
        ["--object", "queue:emails"],
        ["--by", "bob", "--source", "cli"],
    ):
        assert [one["principal"] for one in ratchet.json("audit", *words, "--since", "1h")["entries"]] == [
            "bob"
        ]
    assert ratchet.json("audit", "--job", str(world.pending)[:18])["entries"][0]["principal"] == "ann"
    assert ratchet.json("audit", "--outcome", "refused")["entries"] == []
    page = ratchet.json("audit", "--limit", "1", "--source", "cli")
    assert page["entries"][0]["principal"] == "bob"
    assert (
        ratchet.json("audit", "--source", "cli", "--cursor", page["next_cursor"])["entries"][0]["principal"]
        == "ann"
    )


def test_what_is_not_understood(ratchet: CommandLine, world: World) -> None:
    """A word that means nothing is a usage error that says what would."""
    assert "is none of API, CLI" in ratchet("audit", "--source", "carrier-pigeon", code=2).stderr
    refused = ratchet("queues", "list", "--app", "tests.unit.cli.guarded_app", code=2).stderr
    assert "--app has a store of its own" in refused


def test_the_upgrade_of_the_schema_is_in_it(ratchet: CommandLine, url: str) -> None:
    """From the script on that makes the log, with who did it and what was applied."""
    ratchet("db", "upgrade", "--as", "dora")
    [one] = ratchet.json("audit", "--object", "schema")["entries"]
    assert (one["principal"], one["verb"], one["source"]) == ("dora", "upgrade", "cli")
    assert "__audit" in one["reason"]


@pytest.mark.parametrize(
    ("name", "permission", "verb"), [("status", P.LIST, None), ("rewrap", P.STORAGE, "rewrap")]
)
@pytest.mark.parametrize("role", ["viewer", "operator", "admin", "somebody"])
def test_keys_for_each_role(
    url: str,
    scheduler: Scheduler,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    permission: Permission,
    verb: str | None,
    role: str,
) -> None:
    """Counting keys is looking; moving values to another one is for who may change the storage, and is written down once."""
    made = Scheduler(
        url,
        allow=["tests.unit.cli.errands"],
        authorizer=guarded_app.by_role,
        codec=Keyring(active="new", keys={"new": b"k" * 32}),
    )
    monkeypatch.setattr(guarded_app, "scheduler", made, raising=False)
    words = ["keys", name, "--app", "tests.unit.cli.guarded_app:scheduler", "--as", role]
    result = CliRunner().invoke(app, words)
    left = [(one.principal, one.verb, one.object, one.outcome) for one in entries(scheduler)]
    if permission in guarded_app.ROLES.get(role, ()):
        assert result.exit_code == 0, result.output
        assert left == ([(role, verb, "keys", "done")] if verb else [])
    else:
        assert result.exit_code == 1, result.output
        assert f"'{role}' may not {permission}" in result.stderr
        assert [(one[0], one[2], one[3]) for one in left] == [(role, "keys", "refused")]
    made.close()
