"""How long to wait before the next attempt."""

from __future__ import annotations

from datetime import timedelta

from ratchet.model.status import BackoffPolicy

LONGEST = timedelta(hours=24)


def backoff_delay(
    policy: BackoffPolicy, base: timedelta, attempt: int, jitter: float = 0.0, roll: float = 0.5
) -> timedelta:
    """
    The delay after the *attempt*-th failure (from 1).

    NONE: none. FIXED: *base*. EXPONENTIAL: ``base * 2^(attempt-1)``, at most 24 hours. *jitter* 0.1
    spreads that by plus or minus ten percent; *roll* is the die, from 0 to 1.
    """
    if policy is BackoffPolicy.NONE:
        return timedelta()
    delay = base
    if policy is BackoffPolicy.EXPONENTIAL:
        # Doubled step by step: 2**5000 seconds does not fit a timedelta.
        doubled = base
        for _ in range(attempt - 1):
            if doubled >= LONGEST or not doubled:
                break
            doubled *= 2
        delay = min(doubled, LONGEST)
    return delay * (1.0 + jitter * (2.0 * roll - 1.0)) if jitter else delay
