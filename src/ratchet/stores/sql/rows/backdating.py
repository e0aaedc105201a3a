"""Jobs that come into the queue before what claims have seen already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from ratchet.model.job import JobSpec, StreamKey
from ratchet.stores.sql.database import Session

#: A job that is due since less than this is as good as new: no claim starts to look so late.
LATE = timedelta(seconds=1)


def tell_backdated(session: Session, jobs: Iterable[tuple[int, datetime]], now: datetime) -> None:
    """Jobs, as (stream, due time), came into the queue; `Session.backdated` for those that others may have passed."""
    latest = now - LATE
    if streams := {stream_id for stream_id, due_at in jobs if due_at < latest}:
        session.backdated(streams)


def are_new(specs: Sequence[JobSpec], now: datetime) -> bool:
    """True if no claim can have passed any of these jobs."""
    return min([spec.scheduled_at for spec in specs]) >= now - LATE


def tell_backdated_specs(
    session: Session, specs: Sequence[JobSpec], stream_ids: Mapping[StreamKey, int], now: datetime
) -> None:
    """`tell_backdated` for submitted jobs."""
    if specs and not are_new(specs, now):
        tell_backdated(session, ((stream_ids[spec.stream], spec.scheduled_at) for spec in specs), now)
