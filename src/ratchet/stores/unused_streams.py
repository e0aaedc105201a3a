"""What every store goes by that deletes streams which no job uses any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from ratchet.model.errors import InvalidJob
from ratchet.model.identifiers import timestamp_of

#: What the keys of streams that are set aside begin with: behind every hash.
ASIDE: Final = "unused"

#: How long after a stream was set aside a job that has it may have been submitted, by its submitter's clock.
SAFETY: Final = timedelta(days=2)

#: Jobs at the old end of each table that are looked at.
OLDEST: Final = 2_000


def known_until(oldest: Sequence[tuple[Any, ...]], otherwise: datetime) -> datetime:
    """
    A stream that was set aside before this time, and that any job has, is among those of the *oldest* jobs.

    These are (id, stream) of the first `OLDEST` + 1 by id; *otherwise* where that is all there is.
    """
    if len(oldest) <= OLDEST:
        return otherwise
    try:
        return timestamp_of(oldest[-1][0]) - SAFETY
    except InvalidJob:  # an id without a time: nobody knows
        return datetime.min.replace(tzinfo=otherwise.tzinfo)
