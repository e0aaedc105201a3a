"""Nodes, queues, limits, schedules, the schema, health: what an operator does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from typer.testing import Result

from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import NodeInfo, NodeSpec
from ratchet.model.identifiers import new_id
from ratchet.model.status import Priority
from ratchet.scheduler import Scheduler
from tests.unit.cli import errands
from tests.unit.cli.conftest import CommandLine, World


def test_nodes_are_listed(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """Those that run now, with their lanes; a hint where none does."""
    assert "ratchet worker" in ratchet("nodes").stdout
    with scheduler:
        [node] = ratchet.json("nodes")["nodes"]
        assert node["state"] == "ACTIVE"
        assert node["node_id"] in ratchet("nodes").stdout
    assert ratchet.json("nodes", "--all")["nodes"] == []


def test_a_node_says_what_it_holds(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """Its memory, and how many runs were ended whose code goes on: in the table, and as numbers in JSON."""
    info = NodeInfo(memory=96 * 1024**2, still_running=7)
    minute = timedelta(minutes=1)
    node = NodeSpec(
        node_id="web-1", name="web", host="h", pid=1, version="0", beat_interval=minute, silence=minute,
        info=msgspec.json.encode(info).decode(),
    )  # fmt: skip
    scheduler.store.register(node, now=scheduler.store.database_time())
    heading, _, row = ratchet("nodes").stdout.splitlines()[:3]
    cells = dict(zip(re.split(r"\s{2,}", heading.strip()), re.split(r"\s{2,}", row.strip()), strict=True))
    assert (cells["memory"], cells["still"]) == ("96.0 MiB", "7")
    (found,) = ratchet.json("nodes")["nodes"]
    assert (found["memory"], found["still_running"]) == (96 * 1024**2, 7)


def test_nodes_that_are_gone_are_removed(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """A silent one goes; one that beats is refused with exit code 1, an unknown one is exit code 3."""
    minute = timedelta(minutes=1)
    for name, age in (("silent", timedelta(hours=1)), ("alive", timedelta())):
        node = NodeSpec(
            node_id=name, name=name, host="h", pid=1, version="0", beat_interval=minute, silence=2 * minute
        )
        scheduler.store.register(node, now=scheduler.store.database_time() - age)
    assert ratchet.json("nodes", "--remove", "silent") == {"removed": ["silent"]}
    assert "stop process 1 on h" in ratchet("nodes", "--remove", "alive", code=1).stderr
    assert "no node 'nobody'" in ratchet("nodes", "--remove", "nobody", code=3).stderr
    assert [node["node_id"] for node in ratchet.json("nodes", "--all")["nodes"]] == ["alive"]


def test_queues_are_paused_and_resumed(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """A paused queue says so, and says since when; twice is refused; an unknown one is not found."""
    scheduler.enqueue(errands.greet, "ann").with_queue("emails").submit()
    assert ratchet.json("queues", "pause", "emails") == {"paused": "emails"}
    [emails] = [queue for queue in ratchet.json("queues", "list")["queues"] if queue["name"] == "emails"]
    assert emails["paused"]
    assert emails["pending"] == 1
    assert "emails" in ratchet("queues", "list").stdout
    assert "already paused" in ratchet("queues", "pause", "emails", code=1).stderr
    assert "resumed queue emails" in ratchet("queues", "resume", "emails").stdout
    assert "is not paused" in ratchet("queues", "resume", "emails", code=1).stderr
    assert "there is no queue" in ratchet("queues", "resume", "nowhere", code=3).stderr
    refused = ratchet("queues", "pause", "nosuch", code=3).stderr
    assert "there is no queue 'nosuch' yet, only: emails; with --new" in refused
    assert ratchet.json("queues", "pause", "nosuch", "--new") == {"paused": "nosuch"}


def test_queues_are_paused_until_a_time(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """A time or a duration, not both, and none that has passed; the list shows when the queue opens by itself."""
    scheduler.enqueue(errands.greet, "ann").with_queue("emails").submit()
    assert ratchet.json("queues", "pause", "emails", "--until", "2126-12-01T08:00+00:00") == {
        "paused": "emails",
        "until": "2126-12-01T08:00:00+00:00",
    }
    [emails] = ratchet.json("queues", "list")["queues"]
    assert emails["paused_until"] == "2126-12-01T08:00:00+00:00"
    twice = ratchet("queues", "pause", "emails", "--until", "2126-12-01T08:00+00:00", code=1).stderr
    assert "already paused until then" in twice
    before = scheduler.backend.now()
    assert "until" in ratchet("queues", "pause", "emails", "--for", "2h").stdout
    [queue] = scheduler.queues.list()
    assert queue.paused_until is not None
    assert before + timedelta(hours=2) <= queue.paused_until <= scheduler.backend.now() + timedelta(hours=2)
    for wrong in (
        ["--until", "soon"],
        ["--for", "soon"],
        ["--until", "2020-01-01T00:00"],
        ["--for", "1h", "--until", "x"],
    ):
        assert ratchet("queues", "pause", "emails", *wrong, code=2).stderr
    assert "resumed" in ratchet("queues", "resume", "emails").stdout


def test_holders_of_permits_are_shown(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """The job and its node, for people and for machines."""
    scheduler.limits.set("gateway", concurrent=1)
    job_id = scheduler.enqueue(errands.greet, "ann").with_resource("gateway").submit().id
    request = ClaimRequest(node_id="node-7", claim_id=new_id(), limit=1)
    core = scheduler._core
    assert len(core.store.claim_next_batch(request, now=core.now())) == 1
    (holder,) = ratchet.json("limits", "show", "gateway")["holders"]
    assert (holder["job_id"], holder["node_id"]) == (str(job_id), "node-7")
    assert "node-7" in ratchet("limits", "show", "gateway").stdout


def test_limits_are_set_and_removed(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """At once and per period; what is not named stays."""
    assert "no limits are set" in ratchet("limits", "list").stdout
    assert "5 at once" in ratchet("limits", "set", "gateway", "--concurrent", 5).stdout
    limit = ratchet.json("limits", "set", "gateway", "--rate", 100, "--per", "2m")["limit"]
    assert (limit["concurrent"], limit["rate"], limit["period"]) == (5, 100, 120.0)
    assert "100 per 2m" in ratchet("limits", "list").stdout
    assert [each["name"] for each in ratchet.json("limits", "list")["limits"]] == ["gateway"]
    shown = ratchet.json("limits", "show", "gateway")
    assert (shown["limit"]["held"], shown["holders"]) == (0, [])
    assert "nobody holds a permit" in ratchet("limits", "show", "gateway").stdout
    assert "there is no limit" in ratchet("limits", "show", "nothing", code=3).stderr
    assert ratchet.json("limits", "remove", "gateway", "--yes") == {"removed": "gateway"}
    assert "there is no limit" in ratchet("limits", "remove", "gateway", "--yes", code=3).stderr
    assert "--concurrent" in ratchet("limits", "set", "gateway", code=2).stderr
    assert "--per" in ratchet("limits", "set", "gateway", "--rate", 1, "--per", "soon", code=2).stderr


def test_breakers_are_opened_and_reset(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """By service; what is open stays so, also if it had opened by itself."""
    assert "no breaker was used yet" in ratchet("breakers", "list").stdout
    assert "there is no breaker" in ratchet("breakers", "reset", "bank", code=3).stderr
    assert ratchet.json("breakers", "open", "bank") == {"opened": "bank"}
    assert "already open" in ratchet("breakers", "open", "bank", code=1).stderr
    assert "OPEN" in ratchet("breakers", "list").stdout
    assert ratchet.json("breakers", "list")["breakers"][0]["state"] == "OPEN"
    assert "reset the breaker" in ratchet("breakers", "reset", "bank").stdout
    assert "is not open" in ratchet("breakers", "reset", "bank", code=1).stderr
    assert scheduler.breakers.list()[0].state == "CLOSED"


def test_schedules_are_shown_and_held(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """List, show, pause, resume, trigger and remove, by name."""
    scheduler.schedule_recurring("0 2 * * *", errands.greet, "ann", name="nightly", zone="Europe/Berlin")
    assert "Europe/Berlin" in ratchet("recurring", "list").stdout
    assert [each["name"] for each in ratchet.json("recurring", "list")["schedules"]] == ["nightly"]
    found = ratchet.json("recurring", "show", "nightly", "--next", 3)
    assert len(found["next"]) == 3
    assert found["schedule"]["expression"] == "0 2 * * *"
    assert "it has not fired yet" in ratchet("recurring", "show", "nightly").stdout
    assert ratchet.json("recurring", "pause", "nightly") == {"paused": "nightly"}
    assert ratchet.json("recurring", "list")["schedules"][0]["paused"]
    assert ratchet.json("recurring", "resume", "nightly")["resumed"] == "nightly"
    assert "is not paused" in ratchet("recurring", "resume", "nightly", code=1).stderr
    job = ratchet.json("recurring", "trigger", "nightly")["job_id"]
    assert ratchet.json("jobs", "show", job)["job"]["schedule"] == "nightly"
    assert job in ratchet("recurring", "show", "nightly").stdout
    assert "removed nightly" in ratchet("recurring", "remove", "nightly", "--yes").stdout
    assert "there are no schedules" in ratchet("recurring", "list").stdout


def test_the_options_of_a_schedule_are_shown_and_its_tag_names_it(
    ratchet: CommandLine, scheduler: Scheduler
) -> None:
    """What was said about the runs is in the list, in `show` and in JSON; --tag chooses schedules."""
    scheduler.schedule_recurring(
        "0 2 LW * ?",
        errands.greet,
        "ann",
        name="a",
        tags=["eu"],
        queue="mail",
        priority=Priority.HIGH,
        timeout=90,
    )
    scheduler.schedule_recurring("0 2 * * *", errands.greet, "ann", name="b", max_retries=4, business_key="k")
    shown = " ".join(ratchet("recurring", "show", "a").stdout.split())
    assert "tags eu" in shown
    assert "queue mail" in shown
    (a, b) = ratchet.json("recurring", "list")["schedules"]
    assert (a["tags"], a["queue"], a["priority"], a["timeout"]) == (["eu"], "mail", "HIGH", 90)
    assert (b["max_retries"], b["business_key"]) == (4, "k")
    assert [each["name"] for each in ratchet.json("recurring", "list", "--tag", "eu")["schedules"]] == ["a"]
    assert "NAME" in ratchet("recurring", "remove", code=2).stderr
    assert "no schedule has the tag" in ratchet("recurring", "remove", "--tag", "us").stdout
    assert ratchet.json("recurring", "remove", "--tag", "eu", "--yes") == {"removed": ["a"]}
    assert [schedule.name for schedule in scheduler.schedules.list()] == ["b"]


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "trigger", "remove"])
def test_an_unknown_schedule_is_exit_code_3(ratchet: CommandLine, scheduler: Scheduler, verb: str) -> None:
    """It is told apart from other errors."""
    assert "there is no schedule" in ratchet("recurring", verb, "never", code=3).stderr


# --- the schema


def test_upgrade_creates_the_schema_once(ratchet: CommandLine, tmp_path: Path) -> None:
    """The first run creates, the second finds all done, and status agrees."""
    first = ratchet.json("db", "upgrade")
    assert first["applied"]
    assert (tmp_path / "jobs.db").exists()
    assert "up to date" in ratchet("db", "upgrade").stdout
    assert ratchet.json("db", "status")["ok"]
    assert "up to date" in ratchet("db", "status").stdout


def test_a_missing_schema_is_unhealthy(ratchet: CommandLine, tmp_path: Path) -> None:
    """A database without tables: exit code 4, and what to do about it."""
    (tmp_path / "jobs.db").touch()
    found = ratchet.json("db", "status", code=4)
    assert not found["ok"]
    assert "ratchet db upgrade" in found["problem"]


def test_looking_creates_no_database(ratchet: CommandLine, tmp_path: Path) -> None:
    """A command in the wrong directory says so instead of making an empty database there."""
    for words in (["jobs", "list"], ["health"], ["db", "status"], ["nodes"]):
        assert "there is no database at" in ratchet(*words, code=1).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_ddl_is_printed(bare: Callable[..., Result], dialect: str) -> None:
    """The scripts of a dialect, without connecting to anything."""
    result = bare("db", "ddl", "--dialect", dialect)
    assert result.exit_code == 0
    assert "CREATE TABLE scheduler_job" in result.stdout
    assert bare("db", "ddl", "--url", f"{dialect}://somewhere/db").stdout == result.stdout


def test_there_is_no_ddl_for_an_unknown_dialect(bare: Callable[..., Result]) -> None:
    """The message names those there are."""
    result = bare("db", "ddl", "--dialect", "oracle")
    assert result.exit_code == 1
    assert "postgresql" in result.stderr


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://db.example/shop", 'GRANT SELECT, INSERT ON "public".scheduler_job,'),
        ("mysql://db.example/shop", "GRANT SELECT, INSERT ON `shop`.scheduler_job TO ours_submitter;"),
        ("mongodb://db.example/shop", '"collection": "scheduler_job"}, "actions": ["find", "insert"]}'),
    ],
)
def test_grants_are_printed(bare: Callable[..., Result], url: str, said: str) -> None:
    """The statements of the roles that are named, without connecting to anything."""
    result = bare("db", "grants", "submitter", "--url", url, "--prefix", "ours")
    assert result.exit_code == 0
    assert said in result.stdout
    assert "ours_worker" not in result.stdout
    every = json.loads(bare("db", "grants", "--url", url, "--json").stdout)
    assert [one["name"] for one in every] == [
        "ratchet_migrator",
        "ratchet_worker",
        "ratchet_submitter",
        "ratchet_reader",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "sqlite:///jobs.db"], "SQLite has no users and no roles"),
        (["--url", "mysql://db.example/"], "names no database"),
        (["--url", "oracle://db.example/shop"], "PostgreSQL, MySQL, MariaDB and MongoDB"),
        (
            ["--url", "mysql://db.example/shop", "--prefix", "a; DROP"],
            "small letters, digits and underscores",
        ),
    ],
)
def test_grants_that_cannot_be_made(bare: Callable[..., Result], words: list[str], said: str) -> None:
    """The message says why, and what protects a file."""
    result = bare("db", "grants", *words)
    assert result.exit_code == 1
    assert said in result.stderr


# --- health


def test_health_needs_a_node_unless_none_is_asked_for(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """Nobody would run the next job: not ok. With ``--min-nodes 0`` an empty store is healthy."""
    assert [one["code"] for one in ratchet.json("health", code=4)["problems"]] == ["no_nodes"]
    assert ratchet.json("health", "--min-nodes", "0")["ok"]
    assert "ok" in ratchet("health", "--min-nodes", "0").stdout


def test_health_goes_by_what_the_caller_allows(
    ratchet: CommandLine, scheduler: Scheduler, world: World
) -> None:
    """Dead letters and waits beyond the limits are problems, and each says so; a bad duration is a usage error."""
    scheduler.enqueue_now(errands.greet, "ann")
    found = ratchet.json("health", "--max-dead-letters", "0", "--max-wait", "0", "--min-nodes", "2", code=4)
    codes = {one["code"]: one for one in found["problems"]}
    assert {"no_nodes", "dead_letters", "overdue"} <= codes.keys()
    assert codes["dead_letters"]["count"] == found["dead_letters"] > 0
    assert codes["dead_letters"]["since"]
    shown = ratchet("health", "--max-dead-letters", "0", code=4).stdout
    assert "dead_letters" in shown
    assert "more than 0" in shown
    assert "--max-wait" in ratchet("health", "--max-wait", "soon", code=2).stderr


def test_overdue_jobs_without_a_node_are_unhealthy(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """Exit code 4 and a hint: somebody has to run them."""
    scheduler.enqueue_now(errands.greet, "ann")
    found = ratchet.json("health", code=4)
    assert (found["ok"], found["overdue"], found["nodes"]) == (False, 1, 0)
    assert "ratchet worker" in ratchet("health", code=4).stdout


def test_stats_and_purge(ratchet: CommandLine, world: World) -> None:
    """Sizes and what is old are shown; a purge counts first, wants to be confirmed, and says what it did."""
    shown = ratchet("db", "stats").stdout
    assert "scheduler_job_execution" in shown
    assert "0 ended jobs archived" in shown
    found = ratchet.json("db", "stats")
    assert {table["name"]: table["rows"] for table in found["size"]["tables"]}["scheduler_job"] == 5
    assert found["size"]["bytes"] > 0
    assert found["retention"]["jobs"] == 7 * 86400
    assert ratchet.json("db", "purge", "--older-than", "1us", "--dry-run")["jobs"] == 2
    assert "repeat with --yes" in ratchet("db", "purge", code=1).stderr
    assert "repeat with --yes" in ratchet("db", "purge", "--json", code=1).stderr
    assert "more than nothing" in ratchet("db", "purge", "--older-than", "0", "--yes", code=2).stderr
    assert ratchet("db", "purge", "--yes").stdout == "purged: nothing\n"
    done = ratchet.json("db", "purge", "--older-than", "1us", "--yes")
    assert (done["jobs"], done["dead_letters"]) == (2, 1)
