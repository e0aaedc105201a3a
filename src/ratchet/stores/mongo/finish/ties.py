"""Which jobs are tied to others, as far as this process has seen it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ratchet.stores.mongo.documents.values import Document

#: Fields of a job whose end means something for others: for its batch, for who waits for its key or for itself.
TIES: Final = ("batch_id", "business_key", "has_dependants")
#: Jobs that are remembered; those of a run that was taken away are forgotten last.
_REMEMBERED: Final = 20_000


class Ties:
    """
    Jobs that were claimed here and are tied to others.

    Only a guess that saves a try: whoever ends a job as one without ties has that compared by the server.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tied: dict[int, None] = {}

    def claimed(self, documents: Iterable[Document]) -> None:
        """Jobs as they are claimed; their documents hold at least the fields in `TIES`."""
        tied = [one["_id"].int for one in documents if any(name in one for name in TIES)]
        if tied:
            with self._lock:
                self._tied.update(dict.fromkeys(tied))
                for number in list(self._tied)[: max(0, len(self._tied) - _REMEMBERED)]:
                    del self._tied[number]

    def forget(self, job_ids: Iterable[UUID]) -> None:
        """Jobs whose run has ended."""
        with self._lock:
            for job_id in job_ids:
                self._tied.pop(job_id.int, None)

    def has(self, job_id: UUID) -> bool:
        """True where the job is known to be tied."""
        return job_id.int in self._tied
