"""A process of eight threads that claim until there is nothing left; what each took, and what went wrong."""

from __future__ import annotations

import threading
from datetime import datetime
from multiprocessing.synchronize import Barrier
from typing import Protocol
from uuid import UUID

from ratchet.model.claim import ClaimRequest
from ratchet.model.identifiers import new_id
from ratchet.stores import open_store
from tests.cluster.toilers import guarded

THREADS = 8
BATCH = 40
PATIENCE = 100.0


class Answers(Protocol):
    """Where a process puts what it has to say."""

    def put(self, answer: tuple[list[tuple[UUID, UUID]], list[str]]) -> None: ...


def claim_everything(url: str, node: str, now: datetime, start: Barrier, answers: Answers) -> None:
    """The life of one process: (job, claim) of everything it took, and its errors."""
    store = open_store(url)
    store.counts()  # connected before the race begins
    taken: list[tuple[UUID, UUID]] = []
    errors: list[str] = []

    def claim() -> None:
        empty = 0
        while empty < 3:  # a claim may come back short while others claim; three in a row mean empty
            request = ClaimRequest(node_id=node, claim_id=new_id(), limit=BATCH)
            claims = store.claim_next_batch_optimized(request, now=now)
            taken.extend((claim.job_id, claim.claim_id) for claim in claims)
            empty = 0 if claims else empty + 1

    start.wait(PATIENCE)
    threads = [threading.Thread(target=guarded(claim, errors)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    answers.put((taken, errors))
