"""What is hidden in the messages of a run: the values of its job that people do not see."""

from __future__ import annotations

from ratchet.model.callbacks import given_params
from ratchet.model.claim import ClaimedJob
from ratchet.model.masking import MASKED_PARAM, hidden_texts, stored_masks
from ratchet.model.payload import decode, decode_value
from ratchet.model.status import JobType


def hidden_in(job: ClaimedJob) -> tuple[str, ...]:
    """The texts of the masked values of *job*; empty for the many jobs that mask nothing."""
    params = job.body.params
    if params is None or MASKED_PARAM not in params:
        return ()
    paths = stored_masks(params)
    if not paths:
        return ()
    try:
        args, kwargs = (
            ((), {}) if job.claim.type is JobType.CALLBACK else decode(job.body.payload, strict=False)
        )
        return hidden_texts(args, kwargs, given_params(decode_value(params, strict=False)), paths)
    except Exception:
        return ()  # they cannot be read, so nobody has put them into a message either
