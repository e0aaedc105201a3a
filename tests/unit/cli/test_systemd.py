"""The drain time of a worker that systemd runs follows the unit's TimeoutStopSec."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet import Options
from ratchet.cli.worker import systemd
from ratchet.cli.worker.child import WorkerChild
from ratchet.cli.worker.messages import ChildSettings

STARTED_BY_SYSTEMD = {"INVOCATION_ID": "0123"}
SYSTEM = "0::/system.slice/ratchet-worker.service\n"
USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/ratchet@blue.service\n"


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl that writes down how it was called and answers with the text of a file."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/answer\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    monkeypatch.setattr(systemd, "_CGROUP", tmp_path / "cgroup")
    return tmp_path


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        ("1min 30s", 85.0), ("5min", 295.0), ("2s", 1.0), ("1h 2min 3s 500ms", 3718.5), ("infinity", None), ("", None),
        ("soon", None), ("90", None),
    ],
)  # fmt: skip
def test_the_time_of_the_unit(answers: Path, answer: str, seconds: float | None) -> None:
    """Five seconds less than systemd waits, or half of a short time; nothing where it waits for ever or does not say."""
    (answers / "answer").write_text(answer)
    (answers / "cgroup").write_text(SYSTEM)
    assert systemd.drain_time(STARTED_BY_SYSTEMD) == seconds
    asked = (answers / "asked").read_text().split()
    assert asked == ["show", "--property=TimeoutStopUSec", "--value", "--", "ratchet-worker.service"]


def test_a_service_of_a_user(answers: Path) -> None:
    """It is asked for where it runs."""
    (answers / "answer").write_text("20s")
    (answers / "cgroup").write_text(USER)
    assert systemd.drain_time(STARTED_BY_SYSTEMD) == 15.0
    assert (answers / "asked").read_text().split()[0] == "--user"
    assert (answers / "asked").read_text().split()[-1] == "ratchet@blue.service"


@pytest.mark.parametrize(
    ("environ", "cgroup"),
    [
        ({}, SYSTEM),
        (STARTED_BY_SYSTEMD, "0::/\n"),
        (STARTED_BY_SYSTEMD, "0::/user.slice/user@0.service\n"),
        (STARTED_BY_SYSTEMD, "0::/system.slice/$(reboot).service\n"),
        (STARTED_BY_SYSTEMD, "0::/system.slice/-x.service\n"),
        (STARTED_BY_SYSTEMD, None),
    ],
)
def test_nobody_is_asked_without_a_unit(answers: Path, environ: dict[str, str], cgroup: str | None) -> None:
    """A shell, a container, a name that no unit has: the drain time is what the options say."""
    if cgroup is not None:
        (answers / "cgroup").write_text(cgroup)
    assert systemd.drain_time(environ) is None
    assert not (answers / "asked").exists()


def test_no_systemctl(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing program is no answer."""
    (answers / "cgroup").write_text(SYSTEM)
    monkeypatch.setenv("PATH", str(answers))
    assert systemd.drain_time(STARTED_BY_SYSTEMD) is None


@pytest.mark.parametrize(
    ("given", "options", "expected"),
    [
        ({"default_drain": 85.0}, Options(), 85.0),
        ({"default_drain": 85.0}, Options(drain_timeout=300), None),
        ({"default_drain": 85.0, "drain_timeout": 7.0}, Options(), 7.0),
        ({}, Options(), None),
    ],
)
def test_what_people_say_wins(given: dict[str, float], options: Options, expected: float | None) -> None:
    """The command line, then the app's option, then systemd."""
    child = object.__new__(WorkerChild)
    child._settings = ChildSettings(status=-1, control=-1, path=".", store_named=False, **given)
    assert child._changes(options).get("drain_timeout") == expected
