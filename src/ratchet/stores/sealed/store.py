"""`SealedStore`: any store, with a codec around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.audit import AuditEntry, AuditFilter
from ratchet.model.claim import ClaimedJob, ClaimRequest, JobBody, JobClaim
from ratchet.model.composition import (
    BatchSpec,
    Edge,
    Fire,
    FireRecord,
    Graph,
    ScheduleRecord,
    ScheduleSpec,
    SignalSpec,
)
from ratchet.model.decision import CanceledJob, Completion, CompletionAnswer
from ratchet.model.errors import BusinessKeyBusy, InvalidJob, UnreadablePayload
from ratchet.model.job import (
    Alert,
    DeadLetter,
    DeadLetterGroup,
    Execution,
    Insertion,
    JobFilter,
    JobRecord,
    JobResultRow,
    JobSpec,
    LogEntry,
    LogLine,
    Page,
    Progress,
)
from ratchet.model.payload import is_sealed
from ratchet.model.places import key_place
from ratchet.spi.codec_keys import known_keys
from ratchet.spi.payload_codec import PayloadCodec
from ratchet.stores.sealed.seals import Seals
from ratchet.stores.sealed.values import Values

if TYPE_CHECKING:
    from ratchet.spi.store import JobStore, Sent


def sealed(store: JobStore, codec: PayloadCodec | None) -> JobStore:
    """*store* with *codec* around it; without one, what is encrypted in it is shown as such."""
    return cast("JobStore", SealedStore(store, codec))


class SealedStore:
    """
    A store whose values pass through a codec.

    The methods below are those through which values pass; all others are the store's own.
    """

    def __init__(self, store: JobStore, codec: PayloadCodec | None) -> None:
        #: The store itself, in which values are as the codec has made them.
        self.inner = store
        self.seals = Seals(codec)
        self._values = Values(self.seals)
        self._keys: list[str] = []
        self._places: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    # --- jobs ---

    def insert(
        self,
        specs: Sequence[JobSpec],
        *,
        now: datetime,
        edges: Sequence[Edge] = (),
        batch: BatchSpec | None = None,
        within: object | None = None,
    ) -> list[Insertion]:
        """Store *specs*, sealed."""
        values, given = self._values, specs
        if batch is not None:
            given = [*specs, batch.parent]
            batch = replace(batch, parent=values.sealed_spec(batch.parent))
        try:
            return self.inner.insert(
                [values.sealed_spec(spec) for spec in specs],
                now=now,
                edges=[values.sealed_edge(edge) for edge in edges],
                batch=batch,
                within=within,
            )
        except BusinessKeyBusy as busy:
            raise self._named(busy, given) from None

    def _named(self, busy: BusinessKeyBusy, specs: Sequence[JobSpec]) -> BusinessKeyBusy:
        """*busy* with the key as the caller gave it."""
        for spec in specs:
            if spec.business_key is not None and self.seals.hashed(spec.business_key) == busy.key:
                return BusinessKeyBusy(spec.business_key, busy.holder)
        return busy

    def send_insert(self, spec: JobSpec, *, now: datetime) -> Sent | None:
        """Send a plain job, sealed; only stores that can do this have it."""
        sent: Sent | None = cast(Any, self.inner).send_insert(self._values.sealed_spec(spec), now=now)
        return sent

    def replace(
        self, job_id: UUID, spec: JobSpec, *, now: datetime, within: object | None = None
    ) -> CanceledJob | None:
        """Store *spec*, sealed, in the place of a job."""
        try:
            return self.inner.replace(job_id, self._values.sealed_spec(spec), now=now, within=within)
        except BusinessKeyBusy as busy:
            raise self._named(busy, [spec]) from None

    def append_children(self, batch_id: UUID, specs: Sequence[JobSpec], *, now: datetime) -> bool:
        """Store more children of a batch, sealed."""
        return self.inner.append_children(
            batch_id, [self._values.sealed_spec(spec) for spec in specs], now=now
        )

    def get(self, job_id: UUID) -> JobRecord | None:
        """The job, opened."""
        record = self.inner.get(job_id)
        return None if record is None else self._values.opened_record(record)

    def results(self, job_ids: Sequence[UUID]) -> dict[UUID, JobResultRow]:
        """Results and errors, opened."""
        return {job_id: self._values.opened_row(row) for job_id, row in self.inner.results(job_ids).items()}

    def find(self, where: JobFilter, **given: Any) -> Page[JobRecord]:
        """One page of matching jobs, opened."""
        page = self.inner.find(self._asked(where), **given)
        return Page([self._values.opened_record(record) for record in page], page.next_cursor)

    def count(self, where: JobFilter, **given: Any) -> int:
        """How many jobs match."""
        return self.inner.count(self._asked(where), **given)

    def cancel_matching(self, where: JobFilter, **given: Any) -> list[CanceledJob]:
        """Cancel matching jobs."""
        return self.inner.cancel_matching(self._asked(where), **given)

    def retry_matching(self, where: JobFilter, **given: Any) -> list[UUID]:
        """Retry matching jobs."""
        return self.inner.retry_matching(self._asked(where), **given)

    def delete_dead_letters(self, where: JobFilter, **given: Any) -> tuple[int, UUID | None]:
        """Delete matching dead letters."""
        return self.inner.delete_dead_letters(self._asked(where), **given)

    def _asked(self, where: JobFilter) -> JobFilter:
        """*where* as the store can answer it; `InvalidJob` if it asks about what the store cannot read."""
        for name in ("args", "error_contains", "trace_id"):
            if getattr(where, name) is not None and self._hides_texts():
                raise InvalidJob(
                    f"jobs cannot be searched by {name}: the store sees only what a codec "
                    f"has encrypted. Give jobs a tag or a business key to find them by"
                )
        if where.business_key is None:
            return where
        return dataclasses.replace(where, business_key=self.seals.hashed(where.business_key))

    def _hides_texts(self) -> bool:
        """True if jobs are encrypted; a process without a codec goes by the newest one."""
        if self.seals.codec is not None:
            return True
        return any(is_sealed(record.payload) for record in self.inner.find(JobFilter(), limit=1))

    # --- claims and runs ---

    def claim_next_batch(self, request: ClaimRequest, *, now: datetime) -> list[ClaimedJob]:
        """Due jobs for which this process has the keys, opened; one that cannot be opened is marked as unreadable."""
        found = self.inner.claim_next_batch(self._with_keys(request), now=now)
        return [self._values.opened_claim(job) for job in found]

    def claim_next_batch_optimized(self, request: ClaimRequest, *, now: datetime) -> list[JobClaim]:
        """The same claim without the bodies."""
        return self.inner.claim_next_batch_optimized(self._with_keys(request), now=now)

    def next_due_at(self, request: ClaimRequest, *, now: datetime) -> datetime | None:
        """When the next job is due for which this process has the keys."""
        return self.inner.next_due_at(self._with_keys(request), now=now)

    def next_due_of(self, requests: Sequence[ClaimRequest], *, now: datetime) -> list[datetime | None]:
        """The same, for many requests."""
        return self.inner.next_due_of([self._with_keys(request) for request in requests], now=now)

    def _with_keys(self, request: ClaimRequest) -> ClaimRequest:
        """*request*, also for the places of this process's keys. Those of several keys are named by who asks."""
        keys = known_keys(self.seals.codec)
        if keys != self._keys:
            self._keys, self._places = keys, frozenset(key_place([key]) for key in keys)
        if self._places <= request.parked_targets:
            return request
        return replace(request, parked_targets=request.parked_targets | self._places)

    def bodies(self, claims: Sequence[JobClaim]) -> dict[UUID, JobBody]:
        """The bodies of claimed jobs, opened; what cannot be opened stays sealed."""
        bad: dict[str, UnreadablePayload] = {}
        return {
            job_id: self._values.opened_body(body, bad) for job_id, body in self.inner.bodies(claims).items()
        }

    def complete(
        self,
        completions: Sequence[Completion],
        *,
        now: datetime,
        alert_window: timedelta = timedelta(hours=1),
        within: object | None = None,
    ) -> list[CompletionAnswer]:
        """Apply completions, sealed."""
        return self.inner.complete(
            [self._values.sealed_completion(one) for one in completions],
            now=now,
            alert_window=alert_window,
            within=within,
        )

    def save_progress(
        self, claim: JobClaim, progress: Progress, *, now: datetime, within: object | None = None
    ) -> bool:
        """Store a run's progress, its message sealed."""
        return self.inner.save_progress(
            claim, self._values.sealed_progress(progress, claim.job_id), now=now, within=within
        )

    def save_state(self, claim: JobClaim, state: str, *, now: datetime) -> bool:
        """Store a run's checkpoint, sealed."""
        return self.inner.save_state(claim, self._values.sealed_state(state, claim.job_id), now=now)

    def append_logs(self, entries: Sequence[LogEntry], *, now: datetime) -> None:
        """Store log lines, sealed."""
        self.inner.append_logs([self._values.sealed_entry(entry) for entry in entries], now=now)

    # --- history ---

    def executions(self, job_id: UUID, *, uncounted: bool = False) -> list[Execution]:
        """The runs of a job, opened."""
        return [
            self._values.opened_execution(run) for run in self.inner.executions(job_id, uncounted=uncounted)
        ]

    def logs(self, job_id: UUID, *, limit: int = 1000) -> list[LogLine]:
        """The log lines of a job, opened."""
        return [self._values.opened_line(line, job_id) for line in self.inner.logs(job_id, limit=limit)]

    def dead_letters(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """Dead letters, opened."""
        asked = None if where is None else self._asked(where)
        page = self.inner.dead_letters(asked, limit=limit, cursor=cursor)
        return Page([self._values.opened_letter(letter) for letter in page], page.next_cursor)

    def dead_letter_groups(
        self, where: JobFilter | None = None, *, limit: int = 100
    ) -> list[DeadLetterGroup]:
        """Groups of dead letters, opened."""
        asked = None if where is None else self._asked(where)
        return [self._values.opened_group(one) for one in self.inner.dead_letter_groups(asked, limit=limit)]

    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        """Alerts, opened."""
        return [self._values.opened_alert(one) for one in self.inner.alerts(since=since, limit=limit)]

    def alerts_of(self, job_id: UUID) -> list[Alert]:
        """The alerts about one job, opened."""
        return [self._values.opened_alert(one) for one in self.inner.alerts_of(job_id)]

    # --- audit ---

    def sealed_audit(self, entry: AuditEntry) -> AuditEntry:
        """The entry of a verb as it is stored: it goes through other methods of the store, with the change."""
        return self._values.sealed_audit(entry)

    def find_audit(self, where: AuditFilter, *, limit: int, cursor: str | None = None) -> Page[AuditEntry]:
        """Entries of the audit log, opened."""
        page = self.inner.find_audit(where, limit=limit, cursor=cursor)
        return Page([self._values.opened_audit(entry) for entry in page], page.next_cursor)

    # --- signals, workflows, schedules ---

    def send_signal(self, signal: SignalSpec, *, now: datetime, within: object | None = None) -> list[UUID]:
        """Send a signal, sealed."""
        return self.inner.send_signal(self._values.sealed_signal(signal), now=now, within=within)

    def conditions_of(self, parent_id: UUID) -> list[Edge]:
        """Conditional edges, their arguments opened."""
        return [self._values.opened_edge(edge) for edge in self.inner.conditions_of(parent_id)]

    def edges_of(self, job_id: UUID) -> list[Edge]:
        """Edges, their arguments opened."""
        return [self._values.opened_edge(edge) for edge in self.inner.edges_of(job_id)]

    def graph(self, root_id: UUID) -> Graph:
        """A graph, the arguments of its conditions opened."""
        found = self.inner.graph(root_id)
        return replace(found, edges=tuple(self._values.opened_edge(edge) for edge in found.edges))

    def upsert_schedule(
        self, spec: ScheduleSpec, *, now: datetime, within: object | None = None
    ) -> ScheduleRecord:
        """
        Create or change a schedule, sealed.

        A declaration that says what is stored already is sent as it is stored: sealed anew, it would never be equal.
        """
        held = self.inner.schedule(spec.name, within=within)
        stored = self._values.sealed_schedule(spec, None if held is None else held.spec)
        return self._values.opened_schedule(self.inner.upsert_schedule(stored, now=now, within=within))

    def schedule(self, name: str, *, within: object | None = None) -> ScheduleRecord | None:
        """One schedule, opened."""
        record = self.inner.schedule(name, within=within)
        return None if record is None else self._values.opened_schedule(record)

    def schedules(self) -> list[ScheduleRecord]:
        """All schedules, opened."""
        return [self._values.opened_schedule(record) for record in self.inner.schedules()]

    def claim_due_recurring(self, *, limit: int, now: datetime) -> list[ScheduleRecord]:
        """Schedules that are due, opened."""
        due = self.inner.claim_due_recurring(limit=limit, now=now)
        return [self._values.opened_schedule(record) for record in due]

    def advance(
        self,
        name: str,
        *,
        expected: datetime,
        fires: Sequence[Fire],
        next_fire_at: datetime | None,
        now: datetime,
    ) -> list[FireRecord] | None:
        """Record fires and insert their runs, sealed."""
        return self.inner.advance(
            name,
            expected=expected,
            fires=[self._sealed_fire(fire) for fire in fires],
            next_fire_at=next_fire_at,
            now=now,
        )

    def trigger(
        self, name: str, fire: Fire, *, now: datetime, within: object | None = None
    ) -> FireRecord | None:
        """Record and insert one run outside the timetable, sealed."""
        return self.inner.trigger(name, self._sealed_fire(fire), now=now, within=within)

    def _sealed_fire(self, fire: Fire) -> Fire:
        return fire if fire.spec is None else replace(fire, spec=self._values.sealed_spec(fire.spec))
