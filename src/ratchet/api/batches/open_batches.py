"""
Batches that are stored in chunks: a part is stored, and more items may come.

Their submitter holds a lease for as long as it lives. If its process dies, the lease runs out and a
node cancels the batch, which would otherwise wait for ever.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from ratchet.api.authorization import require_submission
from ratchet.api.backend import Backend
from ratchet.api.submit.sending import announce_canceled, with_retries
from ratchet.model.errors import CommitUnknown, InvalidJob, StoreError
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus

logger = logging.getLogger("ratchet.api")

#: How long a batch outlives the last sign of life of its submitter.
LEASE: Final = timedelta(seconds=60)
#: A lease older than this is renewed before the next write, so that no statement takes longer than
#: what is left of it.
RENEW_AFTER: Final = LEASE / 4


def lease_name(batch_id: UUID) -> str:
    """The name of the lock that stands for a batch's submitter."""
    return f"ratchet.batch.{batch_id}"


class SubmitterLease:
    """
    Tells all nodes that the submitter of a batch is alive; a context manager.

    A thread of its own renews it, because reading the source may take any time.
    """

    def __init__(self, backend: Backend, batch_id: UUID) -> None:
        self._backend = backend
        self._batch_id = batch_id
        self._token = backend.ids()
        self._renewed_at = float("-inf")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, name="ratchet-batch-lease", daemon=True)

    def __enter__(self) -> Self:
        self.keep()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        try:
            self._backend.store.release_lock(lease_name(self._batch_id), token=self._token)
        except StoreError as failure:
            logger.debug("the lease of batch %s will run out by itself: %s", self._batch_id, failure)

    def keep(self) -> None:
        """Renew the lease if it is time; `InvalidJob` if the batch was given up in the meantime."""
        if self._backend.monotonic() - self._renewed_at < RENEW_AFTER.total_seconds():
            return
        if not with_retries(self._backend, self._renew):
            raise InvalidJob(
                f"batch {self._batch_id} was canceled: nothing was heard of its submitter for {LEASE.total_seconds():g} s"
            )

    def _renew(self) -> bool:
        asked_at = self._backend.monotonic()
        held = self._backend.store.acquire_lock(
            lease_name(self._batch_id),
            holder="submitter",
            token=self._token,
            ttl=LEASE,
            now=self._backend.now(),
        )
        if held:
            self._renewed_at = asked_at
        return held

    def _keep_alive(self) -> None:
        while not self._over.wait(RENEW_AFTER.total_seconds()):
            try:
                if not self._renew():
                    return  # `keep` will say so
            except StoreError as error:
                logger.warning("the lease of batch %s could not be renewed: %s", self._batch_id, error)


class OpenBatch:
    """
    A batch to which items are still added, by the one submitter that holds its lease.

    Each method knows for certain what became of its write: if the answer was lost, it asks again.
    """

    def __init__(self, backend: Backend, batch_id: UUID, name: str) -> None:
        self._backend = backend
        self._batch_id = batch_id
        self._name = name

    def append(self, specs: list[JobSpec]) -> None:
        """Store more items; `InvalidJob` if somebody has canceled the batch."""
        store = self._backend.store
        require_submission(self._backend, specs)
        if self._backend.quotas is not None:
            self._backend.quotas.admit(store, specs, self._backend.now())

        def write() -> bool:
            try:
                return store.append_children(self._batch_id, specs, now=self._backend.now())
            except CommitUnknown:
                # one transaction: if one of them is there, all of them are
                if specs[-1].job_id in store.results([specs[-1].job_id]):
                    return True
                raise

        if not with_retries(self._backend, write):
            raise self._canceled()
        self._backend.submitted(specs, due=True, priority=specs[0].priority)

    def seal(self) -> None:
        """Say that no more items come; `InvalidJob` if somebody has canceled the batch."""
        store = self._backend.store
        if with_retries(self._backend, lambda: store.seal(self._batch_id, now=self._backend.now())):
            return
        # It was sealed already: by an earlier try whose answer was lost, or by whoever canceled it.
        parent = with_retries(self._backend, lambda: store.results([self._batch_id])).get(self._batch_id)
        if parent is None or parent.status is JobStatus.CANCELED:
            raise self._canceled()

    def give_up(self, error: BaseException) -> None:
        """Cancel the batch because of *error*; if even that fails, *error* gets a note."""
        reason = "the store was lost" if isinstance(error, StoreError) else "the source of the batch failed"
        try:
            now = self._backend.now()
            canceled = self._backend.store.cancel_batch(self._batch_id, reason=reason, now=now)
            announce_canceled(self._backend, canceled, now)
        except StoreError as failure:
            # Its lease ends with this call, so that a node will cancel it.
            error.add_note(f"batch {self._batch_id} could not be canceled at once: {failure}")

    def _canceled(self) -> InvalidJob:
        return InvalidJob(f"the batch {self._name!r} was canceled while its items were being stored")
