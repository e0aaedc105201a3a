"""Stored texts as they stand: what is counted by key, and what is moved to another one."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct


class Place(StrEnum):
    """Where a store keeps texts that a codec has encoded, in the order in which they are gone through."""

    JOBS = "jobs"
    ARCHIVE = "archive"  # after the jobs: what is archived meanwhile is met here
    RUNS = "runs"
    LOGS = "logs"
    ALERTS = "alerts"
    SIGNALS = "signals"
    CONDITIONS = "conditions"
    SCHEDULES = "schedules"
    AUDIT = "audit"


class ValueRow(Struct, frozen=True, kw_only=True):
    """
    The texts of one row, by field; those that are not there are left out.

    ``key`` finds the row again. ``facts`` are what the context of its values is made of: ids, a name, a time. Those of a
    job have the places of its streams too: ``place``, where it belongs, and ``queued_at``, where claims find it now.
    """

    key: Any
    texts: dict[str, str]
    facts: dict[str, Any]


class ValueChange(Struct, frozen=True, kw_only=True):
    """New texts for one row: each takes the place of the old one, if all of these still stand there."""

    key: Any
    before: dict[str, str]
    after: dict[str, str]
