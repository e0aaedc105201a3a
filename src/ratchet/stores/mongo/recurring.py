"""Recurring schedules and their fire times in MongoDB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import itemgetter

from ratchet.model.composition import Fire, FireRecord, ScheduleRecord, ScheduleSpec
from ratchet.model.job import JobSpec
from ratchet.model.schedules import check_words
from ratchet.stores.memory.values import check, check_spec
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.values import FIRES, SCHEDULES, Document, micros
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.submissions import load_submission
from ratchet.stores.mongo.transaction.work import Rules, Work
from ratchet.stores.mongo.wakeups import wake_with
from ratchet.stores.unreadable import readable, require_readable
from ratchet.stores.validation import validate


def _schedule(document: Document) -> ScheduleRecord:
    record = SCHEDULES.value(document)
    check_words(record.spec)
    return record


class MongoRecurring(MongoPart):
    """Schedules, and what became of their fire times."""

    def upsert_schedule(
        self, spec: ScheduleSpec, *, now: datetime, within: object | None = None
    ) -> ScheduleRecord:
        """Create the schedule or change it to *spec*; equal specs change nothing."""
        check((now, spec), "now")
        return self.change(lambda work: Rules(work).upsert_schedule(spec, now=now), within)

    def schedule(self, name: str, *, within: object | None = None) -> ScheduleRecord | None:
        """One schedule; None if there is none."""
        if within is not None:
            return self.database.run(lambda work: work.schedules.get(name), within=within)
        found = self.database.read(lambda c: c[Names.SCHEDULES].find_one({"_id": name}))
        return None if found is None else require_readable(found, _schedule, Names.SCHEDULES, name)

    def schedules(self) -> list[ScheduleRecord]:
        """All schedules by name."""
        found = self.database.read(lambda c: list(c[Names.SCHEDULES].find().sort("_id", 1)))
        return readable(found, _schedule, Names.SCHEDULES, itemgetter("_id"))

    def remove_schedule(self, name: str, *, within: object | None = None) -> bool:
        """Forget a schedule and its fire times; its runs stay."""

        def work(work: Work) -> bool:
            removed = work.schedules.remove(name) is not None
            fires = {"_id.schedule": name}
            work.afterwards(Names.FIRES, lambda found: found.delete_many(fires, session=work.session))
            return removed

        return self.change(work, within)

    def pause_schedule(self, name: str, *, now: datetime, within: object | None = None) -> bool:
        """Stop firing; True also if it was paused."""
        return self.change(lambda work: Rules(work).pause_schedule(name, now=now), within)

    def resume_schedule(
        self, name: str, next_fire_at: datetime | None, *, now: datetime, within: object | None = None
    ) -> bool:
        """Fire again from *next_fire_at* on; False if it was not paused."""
        return self.change(lambda work: Rules(work).resume_schedule(name, next_fire_at, now=now), within)

    def claim_due_recurring(self, *, limit: int, now: datetime) -> list[ScheduleRecord]:
        """Schedules that are due, not paused, oldest first. A read: `advance` decides who fires."""
        check(now, "now")
        due = {"next_fire_at": {"$lte": micros(now)}, "paused": {"$ne": True}}
        order = [("next_fire_at", 1), ("_id", 1)]
        most = limit
        while True:
            documents = self._find_schedules(due, order, most)
            found = readable(documents, _schedule, Names.SCHEDULES, itemgetter("_id"))
            if len(found) >= limit or len(documents) < most:
                return found[:limit]
            most *= 2  # those that cannot be read are never advanced: they must not take the place of others

    def _find_schedules(self, query: Document, order: list[tuple[str, int]], limit: int) -> list[Document]:
        return self.database.read(lambda c: list(c[Names.SCHEDULES].find(query).sort(order).limit(limit)))

    # --- fires ----------------------------------------------------------------------------------

    def advance(
        self,
        name: str,
        *,
        expected: datetime,
        fires: Sequence[Fire],
        next_fire_at: datetime | None,
        now: datetime,
    ) -> list[FireRecord] | None:
        """
        Record *fires*, insert their runs and move ``next_fire_at``, in one transaction; what was recorded.

        None: somebody else was faster, or the schedule is paused.
        """
        runs = self._prepare_runs(fires, now)

        def work(work: Work) -> list[FireRecord] | None:
            record = work.schedules.get(name)
            if record is None or record.paused or record.next_fire_at != expected:
                return None
            work.touch(Names.SCHEDULES, name)
            work.fires.load((name, fire.fire_at) for fire in fires)
            load_submission(work, runs, (), None)
            return Rules(work).advance(
                name, expected=expected, fires=fires, next_fire_at=next_fire_at, now=now
            )

        return self.database.run(work)

    def fires(self, name: str, *, limit: int = 50) -> list[FireRecord]:
        """The latest recorded fire times, newest first."""
        return self.database.read(
            lambda c: [
                FIRES.value(one).record
                for one in c[Names.FIRES].find({"_id.schedule": name}).sort("_id.fire_at", -1).limit(limit)
            ]
        )

    def purge_fires(self, *, before: datetime, limit: int) -> int:
        """Delete recorded fire times older than *before*, at most *limit*; how many. Runs stay."""
        check(before, "before")
        names = [record.spec.name for record in self.schedules()]

        def purge(collections: Collections) -> int:
            fires, purged = collections[Names.FIRES], 0
            for name in names:
                old = {"_id.schedule": name, "_id.fire_at": {"$lt": micros(before)}}
                found = fires.find(old, {"_id": 1}).sort("_id.fire_at", 1).limit(limit - purged)
                ids = [one["_id"] for one in found] if purged < limit else []
                purged += fires.delete_many({"_id": {"$in": ids}}).deleted_count if ids else 0
            return purged

        return self.counted(purge) if limit > 0 else 0

    def trigger(
        self, name: str, fire: Fire, *, now: datetime, within: object | None = None
    ) -> FireRecord | None:
        """Record and insert one run outside the timetable; None if there is no such schedule."""
        runs = self._prepare_runs([fire], now)

        def work(work: Work) -> FireRecord | None:
            work.touch(Names.SCHEDULES, name)  # it may be removed at this moment
            load_submission(work, runs, (), None)
            if within is not None and self.database.notify:
                work.afterwards(Names.WAKEUPS, lambda wakeups: wake_with(wakeups, work.session))
            return Rules(work).trigger(name, fire, now=now)

        return self.change(work, within)

    def _prepare_runs(self, fires: Iterable[Fire], now: datetime) -> list[JobSpec]:
        check((now, *fires), "now")
        runs = [fire.spec for fire in fires if fire.spec is not None]
        for spec in runs:
            check_spec(spec)
        self.database.streams.make(validate(runs, now=now))
        return runs
