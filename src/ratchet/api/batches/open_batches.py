"""`OpenBatch`: a batch of which only a part is stored; it ends when it is sealed or given up."""

from __future__ import annotations

from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.controls import Controls
from ratchet.api.submit.submission import persisted
from ratchet.model.errors import CommitUnknown, InvalidJob, StoreError
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus


class OpenBatch:
    """
    A batch to which items are still added, by the one submitter that holds its lease.

    What it says of each write is certain: an answer that was lost is found out by asking again.
    """

    def __init__(self, backend: Backend, batch_id: UUID, name: str) -> None:
        self._backend = backend
        self._batch_id = batch_id
        self._name = name

    def append(self, specs: list[JobSpec]) -> None:
        """Store more items; `InvalidJob` if somebody has canceled the batch."""
        store = self._backend.store

        def write() -> bool:
            try:
                return store.append_children(self._batch_id, specs, now=self._backend.now())
            except CommitUnknown:
                # one transaction: if one of them is there, all of them are
                if specs[-1].job_id in store.results([specs[-1].job_id]):
                    return True
                raise

        if not persisted(self._backend, write):
            raise self._canceled()
        self._backend.submitted(specs, due=True, priority=specs[0].priority)

    def seal(self) -> None:
        """Say that no more items come; `InvalidJob` if somebody has canceled the batch."""
        store = self._backend.store
        if persisted(self._backend, lambda: store.seal(self._batch_id, now=self._backend.now())):
            return
        # Sealed before: by an earlier try whose answer was lost, or by whoever canceled it.
        parent = persisted(self._backend, lambda: store.results([self._batch_id])).get(self._batch_id)
        if parent is None or parent.status is JobStatus.CANCELED:
            raise self._canceled()

    def give_up(self, error: BaseException) -> None:
        """Cancel the batch because of *error*, which keeps a note where even that failed."""
        reason = "the store was lost" if isinstance(error, StoreError) else "the source of the batch failed"
        try:
            now = self._backend.now()
            canceled = self._backend.store.cancel_batch(self._batch_id, reason=reason, now=now)
            Controls(self._backend)._canceled(canceled, now)
        except StoreError as failure:
            # Its lease ends with this call, so that a node will cancel it.
            error.add_note(f"batch {self._batch_id} could not be canceled at once: {failure}")

    def _canceled(self) -> InvalidJob:
        return InvalidJob(f"the batch {self._name!r} was canceled while its items were being stored")
