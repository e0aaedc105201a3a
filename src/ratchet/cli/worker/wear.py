"""`Wear`: when a process has run enough jobs, or grown too large, to be replaced by a new one."""

from __future__ import annotations

import re
from collections.abc import Callable

from ratchet.model.process import resident_memory, shown_size

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


class Wear:
    """What one process may do at most. A process that has done more is replaced; nothing that it runs is cut short."""

    def __init__(
        self,
        max_jobs: int | None,
        max_memory: int | None,
        runs: Callable[[], int],
        memory: Callable[[], int | None] = resident_memory,
    ) -> None:
        self._max_jobs = max_jobs
        self._max_memory = max_memory
        self._runs = runs
        self._memory = memory

    def reason(self) -> str | None:
        """Why this process should be replaced; None if it should not."""
        if self._max_jobs is not None and (runs := self._runs()) >= self._max_jobs:
            return f"it has run {runs} jobs, and --max-jobs is {self._max_jobs}"
        if self._max_memory is not None and (memory := self._memory() or 0) > self._max_memory:
            return (
                f"it holds {shown_size(memory)} of memory, and --max-memory is {shown_size(self._max_memory)}"
            )
        return None


def parse_size(text: str) -> int:
    """Bytes from ``512M``, ``1.5GiB`` or ``800000000``; K, M, G and T are powers of 1024. `ValueError` says what is wrong."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or not (size := int(float(found[1]) * _UNITS[found[2].lower()])):
        raise ValueError(f"{text!r} is not a size such as 512M or 1.5G")
    return size
