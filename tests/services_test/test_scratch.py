"""The temporary directory of a run: in memory where there is room, gone when the run is over."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.scratch import PREFIX, VARIABLE, Scratch


@pytest.fixture(autouse=True)
def nobody_has_chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As at the beginning of a run, and afterwards as it was."""
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", None)
        patch.delenv(VARIABLE, raising=False)
        yield
        os.environ.pop(VARIABLE, None)


def test_everything_is_written_there(tmp_path: Path) -> None:
    """Whoever asks for a temporary directory gets one below it, users of other servers included; the end removes all."""
    scratch = Scratch.begin(tmp_path, room=0)
    assert scratch is not None
    made = Path(tempfile.mkdtemp())
    assert made.parent == scratch.directory == Path(os.environ[VARIABLE])
    assert scratch.directory.stat().st_mode & 0o777 == 0o777
    scratch.end()
    assert not scratch.directory.exists()
    assert VARIABLE not in os.environ


def test_without_room_the_disk_is_used(tmp_path: Path) -> None:
    """More than any machine has: nothing is made, and nothing changes."""
    assert Scratch.begin(tmp_path, room=2**60) is None
    assert Scratch.begin(tmp_path / "missing", room=0) is None
    assert VARIABLE not in os.environ
    assert list(tmp_path.iterdir()) == []


def test_a_chosen_directory_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TMPDIR is the choice of whoever runs the tests."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert Scratch.begin(tmp_path, room=0) is None


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    """Only of runs that are over; nobody's directory is taken away."""
    dead, alive, other = (tmp_path / f"{PREFIX}{owner}" for owner in (2**22 + 1, os.getppid(), "x"))
    for directory in (dead, alive, other):
        directory.mkdir()
    scratch = Scratch.begin(tmp_path, room=0)
    assert scratch is not None
    assert [one.exists() for one in (dead, alive, other)] == [False, True, True]
    scratch.end()
