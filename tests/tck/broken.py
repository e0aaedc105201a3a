"""A store with a mistake, for the kit to find."""

from __future__ import annotations

from datetime import datetime

from msgspec import structs

from ratchet.model.claim import JobClaim
from ratchet.spi.store import JobStore
from ratchet.stores.memory import MemoryStore
from tests.tck.memory import MemoryHarness


class ForgetfulStore(MemoryStore):
    """Saves the checkpoint of whoever asks, as long as somebody runs the job."""

    def save_state(self, claim: JobClaim, state: str, *, now: datetime) -> bool:
        record = self.get(claim.job_id)
        if record is None or record.claim_id is None:
            return False
        return super().save_state(structs.replace(claim, claim_id=record.claim_id), state, now=now)


class ForgetfulHarness(MemoryHarness):
    def open(self) -> JobStore:
        self.memory = ForgetfulStore()
        return self.memory
