from __future__ import annotations

from datetime import timedelta

_JOB_DECIDES = timedelta(0)


class DefaultRetryPolicy:
    """Leaves both questions to the job: its attempt counter and its backoff decide."""

    def should_retry(self, attempt: int, error: BaseException) -> bool:
        """Always True; ``max_retries`` draws the line."""
        return True

    def delay(self, attempt: int, error: BaseException) -> timedelta:
        """Always zero: the job's backoff applies."""
        return _JOB_DECIDES
