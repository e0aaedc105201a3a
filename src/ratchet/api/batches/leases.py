"""
The lease of a submitter that stores a batch in chunks.

As long as it holds its lease more items may come. A process that dies takes its thread with it, the
lease runs out, and a node cancels the batch that would otherwise wait for ever.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.submit.submission import persisted
from ratchet.model.errors import InvalidJob, StoreError

logger = logging.getLogger("ratchet.api")

#: How long a batch outlives the last sign of its submitter.
LEASE: Final = timedelta(seconds=60)
#: A lease older than this is renewed before anything is written under it: what is left of it is
#: longer than any statement may take.
RENEW_AFTER: Final = LEASE / 4


def lease_name(batch_id: UUID) -> str:
    """The name of the lock that stands for a batch's submitter."""
    return f"ratchet.batch.{batch_id}"


class SubmitterLease:
    """
    Says to all nodes that the submitter of a batch lives; a context manager.

    Renewed by a thread of its own, because reading the source may take any time.
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
        """Renew the lease if it is time; `InvalidJob` where the batch was given up meanwhile."""
        if self._backend.monotonic() - self._renewed_at < RENEW_AFTER.total_seconds():
            return
        if not persisted(self._backend, self._renew):
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
