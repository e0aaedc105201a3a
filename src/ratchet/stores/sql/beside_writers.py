"""
Indexes that a migration script builds while others write: ``-- beside writers: CREATE INDEX name ON table …;`` in one line.

A script is one transaction, in which PostgreSQL cannot build an index without stopping writers. So the script leaves these
to what comes after it. Code works without them, only slower: an index that could not be built is built by the next upgrade.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MARK = "-- beside writers: "
_INDEX = re.compile(rf"^{_MARK}(CREATE INDEX (\w+) ON (\w+) .+;)$", re.MULTILINE)


class Index(NamedTuple):
    """An index of a script."""

    statement: str
    name: str
    table: str


def beside_writers(script: str) -> list[Index]:
    """The indexes of a script that are built while others write."""
    return [Index(*found) for found in _INDEX.findall(script)]


def at_once(script: str) -> str:
    """The script with its indexes, for tables that nobody uses yet."""
    return _INDEX.sub(r"\1", script)
