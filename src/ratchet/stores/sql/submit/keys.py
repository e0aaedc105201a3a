"""
The keys of a submission: the ledger of idempotency keys, and the business keys of live jobs.

Only statements that cannot fail on a duplicate are used, so that a caller's transaction stays usable
whatever the answer is. A submission waits for a key that another open transaction is just taking.

`take_keys` writes; `KeyPlan` decides who gets which key, graph by graph in the order in which they were submitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from ratchet.model.errors import BusinessKeyBusy, SubmissionBlocked
from ratchet.model.job import JobSpec
from ratchet.model.status import Busy
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dependants.cancellations import CANCELABLE, cancel_locked
from ratchet.stores.sql.rows.failures import Cancellation
from ratchet.stores.sql.rows.keys_and_permits import Holder, find_holders, reserve_keys, take_over_keys
from ratchet.stores.sql.rows.locked import LockedJob, lock_jobs
from ratchet.stores.sql.rows.specs import find_known

SUPERSEDED = "superseded"

#: How often the holder of a key may change meanwhile before the submission gives up.
_TRIES = 20

ENTER_LEDGER = """
    INSERT INTO scheduler_idempotency_key (idempotency_key, job_id, created_at)
    SELECT entry.idempotency_key, entry.job_id, :now
      FROM {rows entry (idempotency_key, job_id)}
     WHERE true
     ORDER BY entry.idempotency_key
        ON CONFLICT (idempotency_key) DO NOTHING
    RETURNING idempotency_key
"""

READ_LEDGER = """
    SELECT idempotency_key, job_id
      FROM scheduler_idempotency_key
     WHERE idempotency_key {in keys text}
    {current}
"""

LEAVE_LEDGER = """
    DELETE FROM scheduler_idempotency_key
     WHERE idempotency_key {in keys text} AND job_id {in ids uuid}
"""

DROP_RESERVATIONS = """
    DELETE FROM scheduler_business_key_reservation WHERE job_id {in ids uuid}
"""


def root_of(spec: JobSpec) -> UUID:
    """The root that the specs of one graph share: they are stored together or not at all."""
    return spec.root_id or spec.job_id


class Keys:
    """
    What the keys of a submission decided.

    ``originals``: the root ids whose specs are not stored, each with the older job that stands for
    them. ``replaced``: the jobs that were canceled for a spec. ``busy``: nothing may be stored, but
    a RUNNING holder was canceled, and that must be committed before this is raised. ``known``: the specs
    that were found to have been stored before, by a submission whose answer was lost; they are left alone.
    """

    def __init__(self, known: Iterable[UUID] = ()) -> None:
        self.known = set(known)
        self.originals: dict[UUID, UUID] = {}
        self.replaced: dict[UUID, UUID] = {}
        self.busy: BusinessKeyBusy | None = None
        self.entered: dict[str, UUID] = {}
        self.reserved: dict[str, UUID] = {}

    def original_of(self, spec: JobSpec) -> UUID | None:
        """The job that stands for a spec that is not stored; None: it is stored."""
        return self.originals.get(root_of(spec))

    def kept(self, specs: Iterable[JobSpec]) -> list[JobSpec]:
        """The specs that are to be stored."""
        return [spec for spec in specs if root_of(spec) not in self.originals]


def take_keys(session: Session, specs: Sequence[JobSpec], known: Iterable[UUID], now: datetime) -> Keys:
    """
    Enter the ledger and reserve business keys for *specs*, before anything else of them is written.

    First each key is taken for the first spec that names it, so that nobody else takes it meanwhile; then the plan
    decides who gets it. Raises `BusinessKeyBusy` where a spec says so.
    """
    keys = Keys(known)
    ledger = _enter_ledger(session, specs, keys, now)
    own = {spec.job_id for spec in specs if ledger.get(spec.idempotency_key or "") == spec.job_id}
    keys.known |= find_known(session, own - keys.known)
    answered = {root_of(spec) for spec in specs if _is_older(ledger, spec, keys.known)}
    wanted: dict[str, UUID] = {}
    for spec in specs:
        if spec.business_key is not None and root_of(spec) not in answered and spec.job_id not in keys.known:
            wanted.setdefault(spec.business_key, spec.job_id)
    plan = _reserve(session, specs, ledger, wanted, keys, now)
    keys.originals = plan.originals
    if plan.staying is not None:
        key, holder = plan.staying
        keys.busy = BusinessKeyBusy(key, holder.job_id)
        _forget(session, keys.entered, keys.reserved)
    else:
        _pass_on(session, plan, keys, now)
    return keys


def drop_reservations(session: Session, job_ids: Iterable[UUID]) -> None:
    """Take back the reservations of jobs that turned out to have been stored, and to have ended, long ago."""
    if ids := sorted(job_ids):
        session.execute(DROP_RESERVATIONS, {"ids": ids})


def _enter_ledger(
    session: Session, specs: Sequence[JobSpec], keys: Keys, now: datetime
) -> Mapping[str, UUID]:
    """Enter the keys that are new; the jobs that the others name."""
    wanted: dict[str, UUID] = {}
    for spec in specs:
        if spec.idempotency_key is not None and spec.job_id not in keys.known:
            wanted.setdefault(spec.idempotency_key, spec.job_id)
    keys.entered = _enter(session, wanted, now)
    others = wanted.keys() - keys.entered.keys()
    return dict(session.rows(READ_LEDGER, {"keys": sorted(others)})) if others else {}


def _enter(session: Session, wanted: Mapping[str, UUID], now: datetime) -> dict[str, UUID]:
    if not wanted:
        return {}
    rows = session.rows(ENTER_LEDGER, {"entry": sorted(wanted.items()), "now": now})
    return {key: wanted[key] for (key,) in rows}


def _is_older(ledger: Mapping[str, UUID], spec: JobSpec, known: Collection[UUID]) -> bool:
    """True where the key of a spec stands for another job, or for this one, which was deleted since."""
    return spec.idempotency_key in ledger and spec.job_id not in known


def _reserve(
    session: Session,
    specs: Sequence[JobSpec],
    ledger: Mapping[str, UUID],
    wanted: Mapping[str, UUID],
    keys: Keys,
    now: datetime,
) -> KeyPlan:
    """Reserve business keys and decide, again and again while the holders change meanwhile."""
    missing: Mapping[str, UUID] = wanted
    for _ in range(_TRIES):
        for key in reserve_keys(session, missing, now):
            keys.reserved[key] = wanted[key]
        missing = {key: job_id for key, job_id in wanted.items() if key not in keys.reserved}
        taken = find_holders(session, missing) if missing else {}
        if len(taken) == len(missing):
            plan = _decide(session, specs, ledger, taken, keys.known, now)
            if plan is not None:
                return plan
    raise SubmissionBlocked(
        f"the business key {next(iter(missing))!r} changed hands {_TRIES} times; submit again"
    )


def _decide(
    session: Session,
    specs: Sequence[JobSpec],
    ledger: Mapping[str, UUID],
    taken: Mapping[str, Holder],
    known: Collection[UUID],
    now: datetime,
) -> KeyPlan | None:
    """What becomes of *specs*, with the holders that have to go canceled; None: a holder has changed meanwhile."""
    # Sent again after a lost answer: the job was stored, and may have ended, and somebody else has its key now.
    again = {spec.job_id for spec in specs if spec.business_key in taken}
    stored = find_known(session, again.difference(known)).union(known)
    plan = KeyPlan(ledger, taken, stored)
    try:
        plan.decide(specs)
    except BusinessKeyBusy:
        if not plan.replacing:
            raise  # else a holder that comes first in the submission may be running
    if not plan.replacing:
        return plan
    # The holders' rows before their keys: their completion locks in the same order.
    jobs = lock_jobs(session, {holder.job_id for holder in plan.replacing.values()})
    holders = find_holders(session, plan.replacing)
    if any(key not in holders or holders[key].job_id != old.job_id for key, old in plan.replacing.items()):
        return None
    running = [holder.job_id for holder in holders.values() if _stays(jobs.get(holder.job_id), holder)]
    plan = KeyPlan(ledger, taken, stored, running)
    plan.decide(specs)
    if plan.staying is not None:
        held = jobs.get(plan.staying[1].job_id)
        _supersede(session, [held] if held is not None and held.status in CANCELABLE else [], {}, now)
    else:
        by = {holder.job_id: plan.owners[key] for key, holder in plan.replacing.items()}
        passed = [(key, holder.job_id, plan.owners[key]) for key, holder in plan.replacing.items()]
        take_over_keys(session, passed, now)
        _supersede(session, [jobs[holder.job_id] for holder in plan.replacing.values()], by, now)
    return plan


def _stays(job: LockedJob | None, holder: Holder) -> bool:
    """True where the code of a run may be still running, so that the key cannot pass on yet."""
    return (
        holder.still_running or job is None or job.still_running is not None or job.status not in CANCELABLE
    )


def _supersede(session: Session, jobs: Sequence[LockedJob], by: Mapping[UUID, UUID], now: datetime) -> None:
    cancellations = [Cancellation(job, SUPERSEDED, superseded_by=by.get(job.job_id)) for job in jobs]
    cancel_locked(session, cancellations, now=now)


def _pass_on(session: Session, plan: KeyPlan, keys: Keys, now: datetime) -> None:
    """Give each key that was taken for the first spec that names it to the one that is stored with it, or back."""
    entered = {key: job_id for key, job_id in keys.entered.items() if plan.entries.get(key) != job_id}
    reserved = {key: job_id for key, job_id in keys.reserved.items() if plan.owners.get(key) != job_id}
    _forget(session, entered, reserved)
    _enter(session, {key: plan.entries[key] for key in entered if key in plan.entries}, now)
    reserve_keys(session, {key: plan.owners[key] for key in reserved if key in plan.owners}, now)
    keys.reserved = plan.owners
    keys.replaced = {plan.owners[key]: holder.job_id for key, holder in plan.replacing.items()}


def _forget(session: Session, entered: Mapping[str, UUID], reserved: Mapping[str, UUID]) -> None:
    if entered:
        session.execute(LEAVE_LEDGER, {"keys": sorted(entered), "ids": sorted(entered.values())})
    drop_reservations(session, reserved.values())


class KeyPlan:
    """
    What becomes of each graph and each key.

    A graph that is not stored takes no key, enters nothing into the ledger and replaces nobody, so it is
    no obstacle to those behind it.

    ``originals``: the roots that are not stored, each with the older job that stands for them.
    ``entries`` and ``owners``: the idempotency and business keys, each with the new job that gets it.
    ``replacing``: the keys whose holder is to be canceled. ``staying``: the first holder that should be, but
    whose code runs; nothing of the submission may then be stored.
    """

    def __init__(
        self,
        ledger: Mapping[str, UUID],
        holders: Mapping[str, Holder],
        stored: Collection[UUID] = (),
        running: Collection[UUID] = (),
    ) -> None:
        self.originals: dict[UUID, UUID] = {}
        self.entries: dict[str, UUID] = {}
        self.owners: dict[str, UUID] = {}
        self.replacing: dict[str, Holder] = {}
        self.staying: tuple[str, Holder] | None = None
        self._ledger = ledger
        self._holders = holders
        self._stored = stored  # sent again after a lost answer
        self._running = running  # holders whose code may be running

    def decide(self, specs: Sequence[JobSpec]) -> None:
        """Decide about *specs*; raises `BusinessKeyBusy` where one of them says so."""
        graphs: dict[UUID, dict[UUID, JobSpec]] = {}
        for spec in specs:
            if spec.job_id not in self._stored:
                graphs.setdefault(root_of(spec), {}).setdefault(spec.job_id, spec)
        for root, graph in graphs.items():
            original = self._original_of(graph.values())
            if original is not None:
                self.originals[root] = original
                continue
            _refuse_repeated(graph.values())
            for spec in graph.values():
                self._keep(spec)
                if self.staying is not None:
                    return

    def _original_of(self, graph: Collection[JobSpec]) -> UUID | None:
        """The job that is the answer to a graph instead of a new one: a duplicate's original before a key's holder."""
        ways = (self._entry_of, self._holder_of)
        return next((found for way in ways for spec in graph if (found := way(spec)) is not None), None)

    def _entry_of(self, spec: JobSpec) -> UUID | None:
        key = spec.idempotency_key
        return None if key is None else self._ledger.get(key) or self.entries.get(key)

    def _holder_of(self, spec: JobSpec) -> UUID | None:
        if spec.business_key is None or spec.busy is not Busy.RETURN:
            return None
        if spec.business_key in self.owners:
            return self.owners[spec.business_key]
        held = self._holders.get(spec.business_key)
        return None if held is None else held.job_id

    def _keep(self, spec: JobSpec) -> None:
        key = spec.business_key
        if key is not None:
            if key in self.owners:  # nobody replaces what is not there yet
                raise BusinessKeyBusy(key, self.owners[key])
            if (holder := self._holders.get(key)) is not None:
                if spec.busy is not Busy.REPLACE:
                    raise BusinessKeyBusy(key, holder.job_id)
                if holder.job_id in self._running:
                    self.staying = key, holder
                    return
                self.replacing[key] = holder
            self.owners[key] = spec.job_id
        if spec.idempotency_key is not None:
            self.entries[spec.idempotency_key] = spec.job_id


def _refuse_repeated(graph: Iterable[JobSpec]) -> None:
    """Refuse a business key that stands twice in one graph: one of its own jobs holds it."""
    reserved: dict[str, UUID] = {}
    for spec in graph:
        key = spec.business_key
        if key is not None and reserved.setdefault(key, spec.job_id) != spec.job_id:
            raise BusinessKeyBusy(key, reserved[key])
