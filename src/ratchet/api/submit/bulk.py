"""Many builders submitted together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from ratchet.api.backend import Backend
from ratchet.api.observe.handles import JobHandle
from ratchet.api.submit.builders import GraphDraft
from ratchet.api.submit.submission import CHUNK, Submission, send
from ratchet.model.errors import InvalidJob


def submit_together(
    backend: Backend, drafts: Iterable[GraphDraft[Any]], *, within: object | None = None
) -> list[JobHandle[Any]]:
    """
    Store many drafts, about a thousand jobs per round trip; their handles, in order.

    All are checked before the first is stored. What is stored together is stored whole or not at
    all: a busy key among them refuses its thousand.
    """
    found = list(drafts)
    for draft in found:
        if not isinstance(draft, GraphDraft):
            raise InvalidJob(f"submit_all takes builders that were not submitted, not {draft!r}")
        draft._require_open()
    if len({id(draft) for draft in found}) < len(found):
        raise InvalidJob("submit_all was given the same builder twice")
    now = backend.now()
    try:
        compiled = [draft._whole.compile(now) for draft in found]
    except BaseException:
        for draft in found:
            draft._disarm()
        raise
    handles: list[JobHandle[Any]] = []
    for part in _grouped(list(zip(found, compiled, strict=True))):
        handles += _submit_part(backend, part, now, within)
    return handles


def _grouped(
    pairs: list[tuple[GraphDraft[Any], Submission]],
) -> Iterator[list[tuple[GraphDraft[Any], Submission]]]:
    group: list[tuple[GraphDraft[Any], Submission]] = []
    size = 0
    for pair in pairs:
        if group and size + len(pair[1].specs) > CHUNK:
            yield group
            group, size = [], 0
        group.append(pair)
        size += len(pair[1].specs)
    if group:
        yield group


def _submit_part(
    backend: Backend,
    part: list[tuple[GraphDraft[Any], Submission]],
    now: datetime,
    within: object | None,
) -> list[JobHandle[Any]]:
    together = Submission()
    for _, submission in part:
        together.add(submission)
    try:
        insertions = send(backend, together, now, within=within)
    except BaseException:
        for draft, _ in part:
            draft._disarm()
        raise
    answers = dict(zip((spec.job_id for spec in together.specs), insertions, strict=True))
    targets = {spec.job_id: spec.target for spec in together.specs}
    handles = []
    for draft, _ in part:
        draft._spend_all("submitted")
        first = draft._whole.first.identified(backend)
        handles.append(draft._handle(answers[first], targets[first]))
    return handles
