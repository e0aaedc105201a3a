"""The command line as a whole: help, exit codes, secrets, output that machines can trust."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

from ratchet.cli.app import COMMANDS, app, app_for
from ratchet.cli.commands.job_changes import CHUNK, in_chunks
from ratchet.cli.output import ago, clean, plain
from ratchet.config import shown_url
from ratchet.model.status import JobStatus, Priority

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its path."""
    found = typer.main.get_command(app) if group is None else group
    for name, command in found.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands())

EXPECTED = """
worker health demo tck top
jobs run-now|jobs set-priority|jobs list|jobs show|jobs cancel|jobs pause|jobs resume|jobs retry|jobs explain|jobs delete|jobs logs
dlq list|dlq retry|dlq alerts|queues list|queues pause|queues resume|limits list|limits set|limits remove
breakers list|breakers open|breakers reset
recurring list|recurring show|recurring pause|recurring resume|recurring trigger|recurring remove
db upgrade|db status|db ddl|db grants|db stats|db purge
nodes list|nodes drain|nodes resume|nodes stop
"""


def test_every_promised_command_exists() -> None:
    """The commands of the public API, and no name has changed."""
    first, *others = EXPECTED.strip().splitlines()
    promised = {(name,) for name in first.split()}
    promised |= {tuple(name.split()) for line in others for name in line.split("|")}
    assert promised <= set(ALL)


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    """The help of ``ratchet`` imports no command: its lines are those of the commands, in their order."""
    everything = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group
    assert list(COMMANDS) == list(everything)
    for name, entry in COMMANDS.items():
        assert (everything[name].help or "").strip().splitlines()[0] == entry.summary.splitlines()[0], name
    shown = CliRunner().invoke(app_for(["--help"]), ["--help"])
    assert shown.exit_code == 0
    assert shown.stdout == CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], ["ratchet.scheduler", "ratchet.cli.commands.jobs", "ratchet.defaults.error_sanitizer"]),
        (["--version"], ["ratchet.scheduler", "ratchet.cli.commands.jobs"]),
        (
            ["jobs", "--help"],
            ["ratchet.cli.worker.command", "ratchet.cli.demo.command", "ratchet.engine.node", "psycopg"],
        ),
        (
            ["health", "--help"],
            ["ratchet.cli.commands.jobs", "ratchet.stores.sql.store", "psycopg", "rich.progress"],
        ),
    ],
    ids=lambda value: " ".join(value[:2]),
)
def test_a_command_imports_what_it_needs(words: list[str], absent: list[str]) -> None:
    """One call of the command line costs mostly imports: no other command is among them, and no driver."""
    code = (
        "import sys\nfrom ratchet.cli import main\nsys.argv[1:] = sys.argv[1].split()\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint('LOADED', *sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, " ".join(words)], capture_output=True, text=True, check=True
    )
    loaded = set(ran.stdout.partition("LOADED ")[2].split())
    assert loaded
    assert not loaded & set(absent)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_takes_url_and_json_and_explains_itself(
    path: tuple[str, ...], bare: Callable[..., Result]
) -> None:
    """--url, --json and a help text with a first sentence and the exit codes."""
    names = {option for parameter in ALL[path].params for option in parameter.opts}
    assert {"--url", "--json"} <= names
    result = bare(*path, "--help")
    assert result.exit_code == 0
    assert "Exit codes" in result.stdout
    summary = (ALL[path].help or "").strip().splitlines()[0]
    assert len(summary) > 15
    assert all(getattr(parameter, "help", "") for parameter in ALL[path].params)


def test_without_a_command_help_is_shown(bare: Callable[..., Result]) -> None:
    """A bare ``ratchet`` shows what there is."""
    assert "worker" in bare().output


def test_unknown_commands_and_options_are_wrong_usage(bare: Callable[..., Result]) -> None:
    """Exit code 2, and nothing on stdout."""
    for words in (
        ["jobz"],
        ["jobs", "list", "--colour"],
        ["jobs", "list", "--limit", "0"],
        ["jobs", "list", "--status", "DONE"],
    ):
        result = bare(*words)
        assert result.exit_code == 2
        assert result.stdout == ""


def test_the_version_is_printed(bare: Callable[..., Result]) -> None:
    """One line."""
    result = bare("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("ratchet ")


def test_completion_is_available(bare: Callable[..., Result]) -> None:
    """Shells can complete commands; typer brings it."""
    assert "--install-completion" in bare("--help").stdout


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:hunter2@127.0.0.1:1/shop",
        "postgresql://app:hunter2@127.0.0.1:1/shop?password=hunter2&connect_timeout=1",
        "oracle://app:hunter2@db/shop",
        "mysql://app:hunter2@db/shop",
    ],
)
@pytest.mark.parametrize(
    "words", [["jobs", "list"], ["health"], ["health", "--json"], ["db", "status"], ["db", "upgrade"]]
)
def test_credentials_of_a_url_are_never_printed(
    bare: Callable[..., Result], url: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that cannot be reached, or does not exist, is an error without traceback and password."""
    monkeypatch.setenv("RATCHET_CONNECT_TIMEOUT", "1")
    result = bare(*words, "--url", url)
    assert result.exit_code in (1, 4)
    assert "hunter2" not in result.output
    assert "Traceback" not in result.output
    assert result.output.strip()


def test_the_url_comes_from_the_environment(
    bare: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RATCHET_URL names the store; --url wins over it."""
    monkeypatch.setenv("RATCHET_URL", f"sqlite:///{tmp_path / 'environment.db'}")
    assert bare("db", "upgrade").exit_code == 0
    assert bare("db", "upgrade", "--url", f"sqlite:///{tmp_path / 'option.db'}").exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["environment.db", "option.db"]
    assert json.loads(bare("jobs", "list", "--json").stdout) == {"jobs": [], "next_cursor": None}


def test_the_default_store_is_a_file_here(
    bare: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a URL the file in the current directory is meant, and its full path is named if it is missing."""
    monkeypatch.delenv("RATCHET_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "ratchet.db") in bare("jobs", "list").stderr.replace("\n", "")
    bare("db", "upgrade")
    assert bare("jobs", "list").exit_code == 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://app:pw@db:5432/shop?sslpassword=pw", "postgresql://db:5432/shop"),
        ("postgresql://db/shop", "postgresql://db/shop"),
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("mongodb://u:p@h1:1,h2:2/db", "mongodb://h1/db"),
    ],
)
def test_urls_are_shown_without_user_and_parameters(url: str, shown: str) -> None:
    """What is left says which store it is."""
    assert shown_url(url).startswith(shown.partition("?")[0][:12])
    assert "pw" not in shown_url(url)
    assert ":p@" not in shown_url(url)


# --- values


class Color(Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int
    when: timedelta


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (NOW, "2026-03-01T12:00:00+00:00"),
        (timedelta(minutes=1.5), 90.0),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Priority.HIGH, "HIGH"),
        (JobStatus.FAILED, "FAILED"),
        (Color.RED, "red"),
        ({JobStatus.FAILED: (1, 2.5, None, True)}, {"FAILED": [1, 2.5, None, True]}),
        (Point(1, timedelta(seconds=2)), {"x": 1, "when": 2.0}),
        ([{"a"}], [["a"]]),
        (object, repr(object)),
    ],
)
def test_values_become_json(value: Any, expected: Any) -> None:
    """Whatever a command finds, ``--json`` can print it."""
    assert plain(value) == expected
    json.dumps(plain(value))


def test_control_characters_of_users_do_not_reach_the_terminal() -> None:
    """A job's error cannot move the cursor or change colors."""
    assert clean("a\x1b[31mb\rc\x07") == "a\\x1b[31mb\\x0dc\\x07"
    assert clean("two\nlines\t") == "two\nlines\t"


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (NOW - timedelta(seconds=90), "1m30s ago"),
        (NOW + timedelta(hours=2), "in 2h"),
        (NOW, "now"),
        (None, "-"),
    ],
)
def test_times_are_shown_as_distances(at: datetime | None, text: str) -> None:
    """People read how long ago."""
    assert ago(at, NOW) == text


def test_long_work_is_done_in_pieces_and_ends() -> None:
    """Never more than was counted at the start, although every piece finds more to do."""
    pieces: list[int] = []

    def step(most: int) -> int:
        pieces.append(most)
        return most

    assert in_chunks("working", CHUNK * 2 + 7, step) == CHUNK * 2 + 7
    assert pieces == [CHUNK, CHUNK, 7]


def test_long_work_ends_when_nothing_is_left() -> None:
    """Jobs that others have changed meanwhile are not waited for."""
    left = [3, 0]
    assert in_chunks("working", 10, lambda most: left.pop(0)) == 3
