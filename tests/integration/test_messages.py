"""Messages that once misled, as they read now: each names the thing, the value and the next step."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ratchet import Options, Scheduler
from ratchet.cli.app import app
from ratchet.model.errors import RatchetError, SchemaOutOfDate
from ratchet.stores import open_store
from ratchet.stores.sql.caller_transaction import refuse_stranger
from ratchet.testing import ManualScheduler


class Thing:
    """A class that JSON cannot carry."""


def nothing() -> None: ...


def returns_a_thing() -> object:
    return {"found": Thing()}


def returns_a_function() -> object:
    return nothing


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(RatchetError) as error:
        call()
    return str(error.value)


def error_of(job: Callable[[], object]) -> str:
    """The error of a job whose result cannot be stored."""
    scheduler = ManualScheduler()
    handle = scheduler.enqueue_now(job)
    scheduler.drain()
    return handle.job().error or ""


def plain(**given: Any) -> Scheduler:
    return Scheduler("sqlite:///:memory:", allow=["shop"], **given)


class Session:
    """Stands for SQLAlchemy's, on a driver that the store does not know."""


HERE = __name__
NAME = f"{__name__}:nothing"

TABLE: dict[str, tuple[Callable[[], str], str]] = {
    "a function that is not declared": (
        lambda: refused(lambda: plain().enqueue_now(nothing)),
        f"the target policy does not allow {NAME}; add {HERE!r} to allow, or declare the function with @scheduler.job",
    ),
    "a function by name that this process has not imported": (
        lambda: refused(lambda: plain().enqueue_by_name("other.jobs:charge").submit()),
        "no job other.jobs:charge is declared here, and the target policy does not allow it; add 'other.jobs' to allow, "
        "or declare the function with @scheduler.job, or import the module that declares it",
    ),
    "a function of Python that runs commands": (
        lambda: refused(lambda: plain().enqueue_now(os.system, "ls")),
        f"the target policy does not allow {os.name}:system; {os.name!r} is a module of Python that runs code or commands: "
        "call system from a function of your own, and declare that with @scheduler.job",
    ),
    "what a worker lacks that has not imported the module": (
        lambda: str(plain()._core.targets.lack("shop2.jobs:charge")),  # type: ignore[attr-defined]  # the registry
        "the function is not declared here: import shop2.jobs (imports=['shop2.jobs'], or --import shop2.jobs) if it "
        "declares it; and the target policy does not allow it without: add 'shop2.jobs' to allow, or declare the function "
        "with @scheduler.job",
    ),
    "a session on another driver": (
        lambda: str(refuse_stranger(Session(), "PostgreSQL", "a psycopg.Connection", Thing())),
        f"within= got a Session on the driver {HERE}.Thing, which cannot join a transaction of the PostgreSQL store; let "
        "its engine use a psycopg.Connection, or pass one",
    ),
    "a result": (
        lambda: error_of(returns_a_thing),
        f"UnstorableValue: result['found'] is a {HERE}.Thing, which JSON cannot carry; return plain values (ids, text, "
        "numbers), a dataclass or a pydantic model, and keep the object itself where others find it",
    ),
    "a function as a result": (
        lambda: error_of(returns_a_function),
        "UnstorableValue: result is a function, which JSON cannot carry; return its name",
    ),
    "an argument": (
        lambda: refused(lambda: ManualScheduler().enqueue_now(print, Thing())),
        f"args[0] is a {HERE}.Thing, which JSON cannot carry; pass plain values (ids, text, numbers), a dataclass or a "
        "pydantic model, and make or load the object inside the job",
    ),
    "a schedule in words": (
        lambda: refused(lambda: ManualScheduler().schedule_recurring("every day", nothing, name="x")),
        "'every day' is not a schedule: write 'every 1d' for an interval, or '@daily' for midnight ('30 4 * * *' for 4:30)",
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_message(case: str) -> None:
    """Word for word: a change of a message is a change that people see."""
    said, expected = TABLE[case]
    assert said() == expected


@pytest.mark.parametrize("kind", ["postgresql_url", "mysql_url", "mongodb_url"])
def test_a_schema_that_is_missing_names_its_database(kind: str, request: pytest.FixtureRequest) -> None:
    """Host, port and database, and no password: somebody with ten databases knows which one to upgrade."""
    url = request.getfixturevalue(kind)
    place, _, _ = url.partition("?")
    database = place.rpartition("/")[2]
    store = open_store(url, Options())
    try:
        with pytest.raises(SchemaOutOfDate) as error:
            store.check_schema()
    finally:
        store.close()
    said = str(error.value)
    assert database in said
    assert re.search(r":\d+\b", said)
    assert "`ratchet db upgrade`" in said
    password = re.search(r"://[^:/@]+:([^@]+)@", url)
    assert password is None or password.group(1) not in said


def test_the_shell_speaks_of_options_and_commands(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No class of Python in what a command says on stderr."""
    url = request.getfixturevalue("postgresql_url")
    upgraded = f"sqlite:///{tmp_path / 'jobs.db'}"
    said = []
    for words in (
        ["jobs", "list", "--url", url],
        ["db", "status", "--url", url],
        ["health", "--url", url],
    ):
        said.append(CliRunner().invoke(app, words).output)
    assert CliRunner().invoke(app, ["db", "upgrade", "--url", upgraded]).exit_code == 0
    for words in (
        ["jobs", "cancel"],
        ["jobs", "retry"],
        ["jobs", "delete"],
        ["jobs", "cancel", "--tag", "x"],
        ["jobs", "submit", "shop.jobs:charge", "--args", f'["{"x" * 200_000}"]'],
        ["jobs", "show", "abcdef"],
        ["queues", "pause", "nosuch"],
        ["recurring", "pause", "nosuch"],
        ["limits", "remove", "nosuch", "--yes"],
        ["breakers", "reset", "nosuch"],
    ):
        said.append(CliRunner().invoke(app, [*words, "--url", upgraded]).output)
    for text in said:
        assert not re.search(r"JobFilter|Options[.(]|Scheduler\(|scheduler\.\w+\(|<class|Error\(", text), text


def test_a_forked_child_is_told_what_it_is(tmp_path: Path) -> None:
    """It is not running: the process that it was forked from is."""
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", allow=[HERE])
    with scheduler:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                scheduler.start()
            except RatchetError as error:
                os.write(writing, str(error).encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        said = os.read(reading, 10_000).decode()
        os.close(reading)
        assert f"this process was forked from process {os.getpid()}, in which this scheduler runs" in said
        assert "make another Scheduler here" in said
        assert refused(scheduler.start).startswith("this scheduler is already running; stop() it")
