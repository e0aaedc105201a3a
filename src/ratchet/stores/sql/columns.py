"""
The kind of every column, by its name.

A name means the same kind in every table, so that a result column can be decoded, and a list of
values sent, by name alone. A test compares this with the catalogs of the databases.
"""

from __future__ import annotations

from typing import Literal, TypeGuard

Kind = Literal["uuid", "time", "bool", "int", "real", "text"]

_UUIDS = """
    job_id root_id claim_id held_claim_id parent_id child_id batch_id signal_id alert_id
    superseded_by canceled_by consumed_by token audit_id
"""
_TIMES = """
    scheduled_time keep_until open_until created_at scheduled_at expires_at started_at finished_at held_at
    dead_lettered_at expiry_due_at signal_due_at picked_at paused_at reserved_at logged_at starts_at ends_at
    next_fire_at last_fire_at updated_at fire_at recorded_at sent_at locked_at last_beat_at rescued_at
    archived_at refilled_at acquired_at applied_at paused_until paused_until_of begins_at audited_at asked_at
"""
_BOOLS = "has_dependants has_conditions result_truncated suspect paused counted sealed declared"
_INTS = """
    stream_id priority attempts attempt crashes max_retries needs backoff_base_us timeout_us jitter_us
    period_us run_time_us beat_interval_us silence_us beat pid total completed failed canceled runs
    position eval_order sequence epoch max_concurrent rate suppressed serves seconds affected
"""
_REALS = "jitter progress tokens"

KINDS: dict[str, Kind] = {
    **dict.fromkeys(_UUIDS.split(), "uuid"),
    **dict.fromkeys(_TIMES.split(), "time"),
    **dict.fromkeys(_BOOLS.split(), "bool"),
    **dict.fromkeys(_INTS.split(), "int"),
    **dict.fromkeys(_REALS.split(), "real"),
}


#: The names that mean something else in one table.
EXCEPTIONS: dict[tuple[str, str], Kind] = {("scheduler_circuit_breaker", "version"): "int"}


def is_kind(word: str) -> TypeGuard[Kind]:
    """True for the name of a kind."""
    return word in ("uuid", "time", "bool", "int", "real", "text")


def kind_of(name: str) -> Kind:
    """
    The kind of a column or of a result's label.

    Labels that no table has follow the endings: ``…_at`` is a time, ``…_uuid`` a UUID, ``is_…`` and
    ``has_…`` a bool. Everything else is what the driver makes of it.
    """
    if kind := KINDS.get(name):
        return kind
    if name.endswith("_at"):
        return "time"
    if name.endswith("_uuid"):
        return "uuid"
    if name.startswith(("is_", "has_")):
        return "bool"
    return "text"


def kind_in(table: str, name: str) -> Kind:
    """The kind of a column of one table."""
    return EXCEPTIONS.get((table, name)) or KINDS.get(name, "text")
