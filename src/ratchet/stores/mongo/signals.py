"""Signals in MongoDB: delivered to the jobs that wait, or kept for the first that will."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ratchet.model.composition import SignalSpec
from ratchet.stores.memory.signals import REMEMBERED
from ratchet.stores.memory.values import check
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.jobs import Link, link
from ratchet.stores.mongo.documents.values import micros
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.transaction.work import Rules, Work


class MongoSignals(MongoPart):
    """Signals."""

    def send_signal(self, signal: SignalSpec, *, now: datetime, within: object | None = None) -> list[UUID]:
        """
        Release every job WAITING for the key (only ``job_id``, if it is set), storing the signal on it.

        A signal that releases no job is kept until ``keep_until`` for the first job that is submitted to wait for it.
        """
        check((now, signal), "now")

        def work(work: Work) -> list[UUID]:
            waiters = work.awaiting.of(signal.key)
            work.edges_in.load(waiters)
            return Rules(work).send_signal(signal, now=now)

        return self.change(work, within)

    def waiting_for(self, key: str, *, limit: int = 100) -> list[UUID]:
        """The jobs that wait for a key, oldest first."""
        waiting = {"links": link(Link.SIGNAL, key)}
        return self.database.read(
            lambda c: [
                one["_id"] for one in c[Names.JOBS].find(waiting, {"_id": 1}).sort("_id", 1).limit(limit)
            ]
        )

    def purge_signals(self, *, now: datetime, limit: int) -> int:
        """Delete kept signals whose time is over, and what is remembered of delivered ones."""
        check(now, "now")
        over = {
            "$or": [
                {"spec.keep_until": {"$lte": micros(now)}},
                {"spec.keep_until": {"$exists": False}, "sent_at": {"$lte": micros(now - REMEMBERED)}},
            ]
        }

        def purge(collections: Collections) -> int:
            signals = collections[Names.SIGNALS]
            ids = [one["_id"] for one in signals.find(over, {"_id": 1}).sort("_id", 1).limit(limit)]
            return signals.delete_many({"_id": {"$in": ids}, **over}).deleted_count if ids else 0

        return self.database.write(purge) if limit > 0 else 0
