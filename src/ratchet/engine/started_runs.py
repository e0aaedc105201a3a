"""
What runs in this process, written where it outlives the process: in memory that is shared with the supervisor.

When a worker's child dies, its supervisor reads there what ran, so that the crash is charged to that and to nothing else.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from ratchet.engine.run import Run

#: How many runs there is room for. With more at a time, nobody knows which ran, and the claims tell (`is_ahead`).
CAPACITY = 16_384
_WIDTH = 16
#: The first entry is no run: a byte there says that there was no room for some.
_SIZE = (CAPACITY + 1) * _WIDTH


class StartedRuns:
    """
    An entry for each run that has begun.

    An entry is not cleared in the end, only used again: the store knows which of these runs it still waits for. So each
    run costs one write.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._free: list[int] = []  # entries of runs that have ended; the next one takes the last
        self._fresh = iter(range(_WIDTH, (CAPACITY + 1) * _WIDTH, _WIDTH))  # entries that no run has had

    def begin(self, run: Run) -> None:
        """The code of *run* is about to be called, or what it needs is about to be imported."""
        try:
            entry = self._free.pop()
        except IndexError:
            entry = next(self._fresh, 0)
            if not entry:
                self._memory[0] = 1
                return
        claim = run.job.claim
        self._memory[entry : entry + _WIDTH] = run_number(claim.job_id, claim.claim_id).to_bytes(_WIDTH)
        run.entry = entry

    def end(self, run: Run) -> None:
        """Its code has ended: another run may have its entry."""
        entry, run.entry = run.entry, None
        if entry is not None:
            self._free.append(entry)


def run_number(job_id: UUID, claim_id: UUID) -> int:
    """One number for a run: no other run has the same pair, and random bits of both are in it."""
    return job_id.int ^ claim_id.int


def shared_memory() -> int:
    """The descriptor of new memory for a `StartedRuns`, which a process can inherit; close it in the end."""
    with tempfile.TemporaryFile() as file:
        file.truncate(_SIZE)
        return os.dup(file.fileno())


def read_started(descriptor: int) -> frozenset[int] | None:
    """The runs that a process had begun and not ended, and some that it had ended; None if that is not known."""
    memory = os.pread(descriptor, _SIZE, 0)
    if len(memory) < _SIZE or memory[0]:
        return None
    entries = (memory[at : at + _WIDTH] for at in range(_WIDTH, _SIZE, _WIDTH))
    return frozenset(int.from_bytes(entry) for entry in entries if any(entry))
