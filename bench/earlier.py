"""An earlier commit of Ratchet as a contender, so that old and new are measured side by side."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.conversation import ROOT, Contender, ratchet


def commit(ref: str) -> str:
    """The short id of the commit that *ref* names; ValueError if there is none."""
    try:
        return _git("rev-parse", "--short", "--verify", f"{ref}^{{commit}}").decode().strip()
    except subprocess.CalledProcessError:
        raise ValueError(f"{ref} is no commit of this repository") from None


@contextmanager
def earlier(ref: str) -> Iterator[Contender]:
    """
    Ratchet as it was at *ref*, from a copy of that commit that is removed at the end.

    The copy brings its own `bench/subject.py`, which knows the modules of its own time. It is unpacked from
    ``git archive``: a worktree would stay registered in the repository after a run that was killed.
    """
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-") as folder:
        unpack(ref, Path(folder), "bench")
        yield ratchet(name=f"ratchet@{ref}", tree=Path(folder))


def unpack(ref: str, folder: Path, *more: str) -> None:
    """Copy the package as it was at *ref*, and *more* folders of the repository, to *folder*."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", ref, "src", *more))) as archive:
        archive.extractall(folder, filter="data")


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
