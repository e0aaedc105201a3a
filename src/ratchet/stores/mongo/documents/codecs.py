"""How the values of each collection are stored: the codec of each kind of record."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ratchet.model.cluster import BreakerRecord, LockRecord, NodeRecord, PermitRecord
from ratchet.model.composition import BatchRecord, Edge, ScheduleRecord
from ratchet.model.job import Alert, Execution
from ratchet.stores.memory.rows import Cost, FireRow, Limit, Reservation, SignalRow
from ratchet.stores.mongo.documents.values import Codec, Document, micros

EDGES = Codec(Edge, "parent_id", "child_id")
RUNS = Codec(Execution, "job_id", "claim_id")
ALERTS = Codec(Alert, "alert_id")
RESERVATIONS = Codec(Reservation)
PERMITS = Codec(PermitRecord, "resource", "job_id", "claim_id")
LIMITS = Codec(Limit, "name")
BREAKERS = Codec(BreakerRecord, "service")
NODES = Codec(NodeRecord, "node_id")
LOCKS = Codec(LockRecord)
BATCHES = Codec(BatchRecord, "batch_id")
COSTS = Codec(Cost)
SCHEDULES = Codec(ScheduleRecord)
FIRES = Codec(FireRow)
SIGNALS = Codec(SignalRow)


def fire_identity(key: tuple[str, datetime]) -> Document:
    """The ``_id`` of a fire time."""
    return {"schedule": key[0], "fire_at": micros(key[1])}


def run_identity(run: tuple[UUID, UUID]) -> Document:
    """The ``_id`` of a run: its job and its claim."""
    return {"job_id": run[0], "claim_id": run[1]}
