"""Who gets which key of a submission, decided graph by graph in the order in which they were submitted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.job import JobSpec
from ratchet.model.status import Busy
from ratchet.stores.sql.rows.keys_and_permits import Holder


def root_of(spec: JobSpec) -> UUID:
    """What the specs of one graph have in common: they are stored together or not at all."""
    return spec.root_id or spec.job_id


class KeyPlan:
    """
    What becomes of each graph and each key.

    A graph that is not stored takes no key, enters nothing into the ledger and replaces nobody; so it is
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
        self._running = running  # holders whose code may be at work

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
