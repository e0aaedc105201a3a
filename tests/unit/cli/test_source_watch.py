"""Changes of source files are noticed, and only those."""

from __future__ import annotations

import os
from pathlib import Path

from ratchet.cli.worker.source_watch import SourceWatch, sources_of


def touch(path: Path, seconds: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x = 1\n")
    os.utime(path, (seconds, seconds))


def test_written_created_and_deleted_files_are_changes(tmp_path: Path) -> None:
    """Every kind of change is told once; what is no source is not."""
    old, gone = tmp_path / "old.py", tmp_path / "deep" / "gone.py"
    touch(old, 1000)
    touch(gone, 1000)
    watch = SourceWatch([tmp_path])
    assert watch.changed() == []
    touch(old, 2000)
    gone.unlink()
    touch(tmp_path / "new.py", 1000)
    touch(tmp_path / "notes.txt", 1000)
    touch(tmp_path / "__pycache__" / "old.py", 1000)
    assert watch.changed() == sorted([old, gone, tmp_path / "new.py"])
    assert watch.changed() == []


def test_a_package_is_found_without_being_imported(tmp_path: Path) -> None:
    """The supervisor watches the app's package and never runs its code."""
    package = tmp_path / "unwatched_shop"
    touch(package / "__init__.py", 1000)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    touch(package / "jobs.py", 1000)
    assert sources_of("unwatched_shop.jobs:scheduler", str(tmp_path)) == [package]


def test_a_single_module_is_watched_as_a_file(tmp_path: Path) -> None:
    """An app may be one file."""
    touch(tmp_path / "lonely_app.py", 1000)
    assert sources_of("lonely_app:scheduler", str(tmp_path)) == [tmp_path / "lonely_app.py"]


def test_an_app_that_is_not_there_has_no_sources(tmp_path: Path) -> None:
    """Nothing is found rather than something wrong."""
    assert sources_of("no_such_app_anywhere:scheduler", str(tmp_path)) == []
