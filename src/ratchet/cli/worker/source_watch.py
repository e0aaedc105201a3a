"""The source files of an app, watched for changes by their modification times."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path


class SourceWatch:
    """
    Tells which ``.py`` files under *roots* have changed since it was asked last.

    Polling modification times is slower than asking the operating system and works everywhere:
    on network drives, in containers, for editors that replace files instead of writing them.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self._seen = self._look()

    def changed(self) -> list[Path]:
        """Files that were written, created or deleted since the last call."""
        before, self._seen = self._seen, self._look()
        return sorted(
            path for path in before.keys() | self._seen.keys() if before.get(path) != self._seen.get(path)
        )

    def _look(self) -> dict[Path, int]:
        found: dict[Path, int] = {}
        for root in self.roots:
            for path in [root] if root.is_file() else _python_files(root):
                try:
                    found[path] = path.stat().st_mtime_ns
                except OSError:
                    continue  # deleted between the listing and the look
        return found


def _python_files(root: Path) -> list[Path]:
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        found += [Path(folder, name) for name in files if name.endswith(".py")]
    return found


def sources_of(app: str, path: str) -> list[Path]:
    """Where the top-level package (or module) of *app* lies, without importing it; empty if it cannot be found."""
    name = app.partition(":")[0].partition(".")[0]
    added = path not in sys.path
    if added:
        sys.path.insert(0, path)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    finally:
        if added:
            sys.path.remove(path)
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [Path(location) for location in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin else []
