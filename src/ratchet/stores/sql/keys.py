"""
The keys of a submission: the ledger of idempotency keys, and the business keys of live jobs.

Only statements that cannot fail on a duplicate are used, so that a caller's transaction stays usable
whatever the answer is. A key that another open transaction is just taking is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from ratchet.model.errors import BusinessKeyBusy, SubmissionBlocked
from ratchet.model.job import JobSpec
from ratchet.model.status import Busy
from ratchet.stores.sql.cancellations import CANCELABLE, cancel_locked
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.endings import Cancellation
from ratchet.stores.sql.holdings import Holder, find_holders, reserve_keys, take_over_keys
from ratchet.stores.sql.locked import LockedJob, lock_jobs
from ratchet.stores.sql.specs import FIND_STORED

SUPERSEDED = "superseded"

#: How often the holder of a key may change under our hands before the submission gives up.
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


class Keys:
    """
    What the keys of a submission decided.

    ``originals``: the root ids whose specs are not stored, each with the older job that stands for
    them. ``replaced``: the jobs that were canceled for a spec. ``busy``: nothing may be stored, but
    RUNNING holders were canceled, and that must be committed before this is raised.
    """

    def __init__(self) -> None:
        self.originals: dict[UUID, UUID] = {}
        self.replaced: dict[UUID, UUID] = {}
        self.busy: BusinessKeyBusy | None = None
        self.entered: dict[str, UUID] = {}
        self.reserved: dict[str, UUID] = {}

    def original_of(self, spec: JobSpec) -> UUID | None:
        """The job that stands for a spec that is not stored; None: it is stored."""
        return self.originals.get(spec.root_id or spec.job_id)

    def kept(self, specs: Iterable[JobSpec]) -> list[JobSpec]:
        """The specs that are to be stored."""
        return [spec for spec in specs if (spec.root_id or spec.job_id) not in self.originals]


def take_keys(session: Session, specs: Sequence[JobSpec], now: datetime) -> Keys:
    """
    Enter the ledger and reserve business keys for *specs*, before anything else of them is written.

    Raises `BusinessKeyBusy` where a spec says so.
    """
    keys = Keys()
    _enter_ledger(session, specs, keys, now)
    kept = keys.kept(specs)
    first = _first_of_each_key(kept)
    _reserve(session, dict(first), keys, now)
    for spec in kept:  # the later ones of a key that stands twice in this call
        if spec.business_key is not None and (holder := first[spec.business_key]).job_id != spec.job_id:
            keys.originals[spec.root_id or spec.job_id] = keys.original_of(holder) or holder.job_id
    if keys.busy is not None:
        _forget(session, keys.entered, keys.reserved)
    else:
        _forget_dropped(session, specs, keys)
    return keys


def drop_reservations(session: Session, job_ids: Iterable[UUID]) -> None:
    """Take back reservations that were made for jobs that turned out to be stored, and ended, long ago."""
    if ids := sorted(job_ids):
        session.execute(DROP_RESERVATIONS, {"ids": ids})


def _enter_ledger(session: Session, specs: Sequence[JobSpec], keys: Keys, now: datetime) -> None:
    wanted: dict[str, UUID] = {}
    for spec in specs:
        if spec.idempotency_key is not None:
            wanted.setdefault(spec.idempotency_key, spec.job_id)
    if not wanted:
        return
    rows = session.rows(ENTER_LEDGER, {"entry": sorted(wanted.items()), "now": now})
    keys.entered = {key: wanted[key] for (key,) in rows}
    ledger = dict(keys.entered)
    if others := wanted.keys() - ledger.keys():
        ledger.update(session.rows(READ_LEDGER, {"keys": sorted(others)}))
    for spec in specs:
        if spec.idempotency_key is not None and (original := ledger[spec.idempotency_key]) != spec.job_id:
            keys.originals.setdefault(spec.root_id or spec.job_id, original)


def _first_of_each_key(specs: Iterable[JobSpec]) -> dict[str, JobSpec]:
    first: dict[str, JobSpec] = {}
    for spec in specs:
        if spec.business_key is None:
            continue
        holder = first.setdefault(spec.business_key, spec)
        if holder.job_id != spec.job_id and (spec.busy is not Busy.RETURN or _are_one_graph(holder, spec)):
            raise BusinessKeyBusy(spec.business_key, holder.job_id)
    return first


def _are_one_graph(one: JobSpec, other: JobSpec) -> bool:
    """True where neither can stand for the other: they are stored together or not at all."""
    return (one.root_id or one.job_id) == (other.root_id or other.job_id)


def _reserve(session: Session, waiting: dict[str, JobSpec], keys: Keys, now: datetime) -> None:
    """Reserve business keys, again and again while the holders change under our hands."""
    for _ in range(_TRIES):
        if not waiting:
            return
        for key in reserve_keys(session, {key: spec.job_id for key, spec in waiting.items()}, now):
            keys.reserved[key] = waiting.pop(key).job_id
        taken = find_holders(session, waiting) if waiting else {}
        for key, holder in list(taken.items()):
            if holder.job_id == waiting[key].job_id:  # sent again
                del waiting[key], taken[key]
        if taken and _answer_busy(session, waiting, taken, keys, now):
            return
    raise SubmissionBlocked(
        f"the business key {next(iter(waiting))!r} changed hands {_TRIES} times; submit again"
    )


def _answer_busy(
    session: Session, waiting: dict[str, JobSpec], taken: Mapping[str, Holder], keys: Keys, now: datetime
) -> bool:
    """Do what the specs of taken keys say; True: the submission ends here (`Keys.busy`)."""
    # Sent again after a lost answer: the job was stored, and has ended, and somebody else has its key now.
    again = session.rows(FIND_STORED, {"ids": sorted(waiting[key].job_id for key in taken)})
    stored = {job_id for (job_id,) in again}
    replacing: dict[str, Holder] = {}
    for key, holder in taken.items():
        spec = waiting[key]
        if spec.job_id in stored:
            del waiting[key]
        elif spec.busy is Busy.RETURN:
            keys.originals[spec.root_id or spec.job_id] = holder.job_id
            del waiting[key]
        elif spec.busy is Busy.RAISE:
            raise BusinessKeyBusy(key, holder.job_id)
        else:
            replacing[key] = holder
    return bool(replacing) and _replace(session, waiting, replacing, keys, now)


def _replace(
    session: Session, waiting: dict[str, JobSpec], replacing: Mapping[str, Holder], keys: Keys, now: datetime
) -> bool:
    # The holders' rows before their keys: their completion locks in the same order.
    jobs = lock_jobs(session, {holder.job_id for holder in replacing.values()})
    holders = find_holders(session, replacing)
    still = {key: holder for key, holder in holders.items() if holder.job_id == replacing[key].job_id}
    staying = {key: holder for key, holder in still.items() if _stays(jobs.get(holder.job_id), holder)}
    if staying:
        running = [jobs[holder.job_id] for holder in staying.values() if _is_live(jobs.get(holder.job_id))]
        _supersede(session, running, {}, now)
        key, holder = next(iter(staying.items()))
        keys.busy = BusinessKeyBusy(key, holder.job_id)
        return True
    by = {holder.job_id: waiting[key].job_id for key, holder in still.items()}
    take_over_keys(session, [(key, holder.job_id, waiting[key].job_id) for key, holder in still.items()], now)
    _supersede(session, [jobs[holder.job_id] for holder in still.values()], by, now)
    for key, holder in still.items():
        spec = waiting.pop(key)
        keys.reserved[key] = spec.job_id
        keys.replaced[spec.job_id] = holder.job_id
    return False


def _stays(job: LockedJob | None, holder: Holder) -> bool:
    """True where the code of a run may still be at work, so that the key cannot pass on yet."""
    return holder.lingers or job is None or job.lingering is not None or not _is_live(job)


def _is_live(job: LockedJob | None) -> bool:
    return job is not None and job.status in CANCELABLE


def _supersede(session: Session, jobs: Sequence[LockedJob], by: Mapping[UUID, UUID], now: datetime) -> None:
    cancellations = [Cancellation(job, SUPERSEDED, superseded_by=by.get(job.job_id)) for job in jobs]
    cancel_locked(session, cancellations, now=now)


def _forget_dropped(session: Session, specs: Sequence[JobSpec], keys: Keys) -> None:
    if not keys.originals:
        return
    dropped = {spec.job_id for spec in specs} - {spec.job_id for spec in keys.kept(specs)}
    entered = {key: job_id for key, job_id in keys.entered.items() if job_id in dropped}
    reserved = {key: job_id for key, job_id in keys.reserved.items() if job_id in dropped}
    _forget(session, entered, reserved)
    for key in reserved:
        del keys.reserved[key]


def _forget(session: Session, entered: Mapping[str, UUID], reserved: Mapping[str, UUID]) -> None:
    if entered:
        session.execute(LEAVE_LEDGER, {"keys": sorted(entered), "ids": sorted(entered.values())})
    drop_reservations(session, reserved.values())
