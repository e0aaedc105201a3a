"""
The tables of a transaction that differ from others: jobs, which live in two places, and small collections.

And how jobs are grouped: who runs them, which schedule they are of, what they wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from pymongo.cursor import Cursor

from ratchet.model.status import JobStatus
from ratchet.stores.memory.rows import Reservation, Row
from ratchet.stores.memory.tables import Index, Journal
from ratchet.stores.mongo.claiming.gates import BATCH
from ratchet.stores.mongo.documents.jobs import WITHOUT_BODY, row_of
from ratchet.stores.mongo.documents.values import Document
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.transaction.tables import CodedSource, LoadedTable

if TYPE_CHECKING:
    from ratchet.stores.mongo.transaction.work import Work

K = TypeVar("K")
V = TypeVar("V")


class WholeTable(LoadedTable[K, V]):
    """A small collection that may be looked through: runs whose code goes on, locks."""

    _read = False

    def items(self) -> list[tuple[K, V]]:
        if not self._read:
            self.load_all()
            self._read = True
        return super().items()


class ReservationTable(LoadedTable[str, Reservation]):
    """Business keys."""

    def items(self) -> list[tuple[str, Reservation]]:
        """Those that the code of a run still holds: asked only for a job that has been deleted."""
        self.load_all({"claim_id": {"$exists": True}})
        return super().items()


class JobTable(LoadedTable[UUID, Row]):
    """Jobs, wherever they live; without what is large and decides nothing."""

    def __init__(self, name: str, journal: Journal, work: Work, *indexes: Index[UUID, Row]) -> None:
        self._work = work
        source = CodedSource(self._find, self._decode, lambda job_id: job_id)
        super().__init__(name, journal, source, *indexes)

    def load(self, keys: Iterable[UUID]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        if not missing:
            return
        super().load(missing)
        if elsewhere := [key for key in missing if key not in self._rows]:
            archive = self._work.collection(Names.ARCHIVE)
            for document in archive.find(
                {"_id": {"$in": elsewhere}}, WITHOUT_BODY, session=self._work.session
            ):
                self._known.discard(document["_id"])
                self.absorb(*self._decode(document))

    def _find(self, query: Mapping[str, Any]) -> Cursor[Document]:
        jobs = self._work.collection(Names.JOBS)
        return jobs.find(query, WITHOUT_BODY, session=self._work.session, batch_size=BATCH)

    def _decode(self, document: Document) -> tuple[UUID, Row]:
        self._work.seen(document)
        return document["_id"], row_of(document, self._work.stream_key)


def running_on(row: Row) -> str | None:
    """The node that runs it."""
    return row.node_id if row.status is JobStatus.RUNNING else None


def unended_run_of(row: Row) -> str | None:
    """The schedule of a run that has not ended."""
    return row.spec.schedule if row.ended_as is None else None


def may_expire(row: Row) -> bool | None:
    """True where it has a deadline."""
    return True if row.expiry_due_at is not None or row.signal_due_at is not None else None


def awaited_signal(row: Row) -> str | None:
    """The key of the signal it waits for."""
    return row.spec.signal.key if row.spec.signal is not None and row.awaits_signal else None
