"""Claims in SQL."""

from __future__ import annotations

from typing import Protocol


class ClaimPlan(Protocol):
    """How one product finds, locks and marks the next jobs."""
