from __future__ import annotations

from datetime import timedelta
from typing import Protocol


class RetryPolicy(Protocol):
    """
    Says whether a failed attempt may be tried again, and after how long.

    It is asked after ``do_not_retry`` and ``no_retry_for`` and before the attempt counter: it can
    forbid a retry, never grant one beyond the job's ``max_retries``. A policy that raises or answers with
    something else is treated as one that answered True and zero, so that a defect in it loses no job.
    """

    def should_retry(self, attempt: int, error: BaseException) -> bool:
        """True if the job may run again after its *attempt*-th failure (from 1) with *error*."""
        ...

    def delay(self, attempt: int, error: BaseException) -> timedelta:
        """How long to wait before the next attempt; zero leaves it to the job's own backoff."""
        ...
