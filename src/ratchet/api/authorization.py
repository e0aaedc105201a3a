"""
Who may do it, and what is written down about it.

`by_hand` stands around each change that a person makes: it asks the authorizer, and hands the entry of the audit log to the
store, which writes it with the change. `require` is for what is only read. For many jobs, `Permitted` says which part of a
filter may be read or changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.observe.records import job_of, job_of_spec
from ratchet.model.audit import OBJECT_LIMIT, REASON_LIMIT, AuditEntry, AuditOutcome, criteria_of
from ratchet.model.errors import NotAuthorized, StoreError
from ratchet.model.filters import both, only
from ratchet.model.identifiers import new_id
from ratchet.model.job import Job, JobFilter, JobRecord, JobSpec, Page
from ratchet.model.permissions import Permission
from ratchet.spi.store import JobStore
from ratchet.spi.store.audit import PendingEntry, auditing

logger = logging.getLogger("ratchet")

#: Jobs that are looked at for one page, at most: a page may be short, and its cursor goes on.
LOOKED_AT = 10_000
#: Jobs that are read at once to be asked about.
ASKED_AT_ONCE = 500


# --- one job, or one thing ----------------------------------------------------------------------------


@contextmanager
def by_hand(
    backend: Backend,
    permission: Permission,
    verb: str | None = None,
    *,
    job_id: UUID | None = None,
    job: Job | None = None,
    about: str | None = None,
    where: JobFilter | None = None,
    reason: str | None = None,
    within: object | None = None,
    many: bool = False,
    asked: bool = True,
    quiet: bool = False,
    certain: bool = False,
    store: JobStore | None = None,
) -> Iterator[None]:
    """
    Ask whether the block may be carried out, and have its change written down.

    *job_id*, *about* or *where* says what it is about. *job*: what to ask about, if it is not stored yet. A block that
    had nothing to change leaves an entry too, unless it is *quiet*; one that raises leaves none. *asked*: False where the
    question was put already, or is put for each job. *certain*: something is changed even if the count is 0.
    """
    if asked and backend.authorizer is not None:
        _ask(backend, permission, verb, job_id=job_id, job=job, about=about, within=within)
    kept = backend.store if store is None else store
    if not hasattr(kept, "append_audit"):  # a store that somebody wrote for an earlier version
        yield
        return
    pending = PendingEntry(
        _sealed(
            kept,
            _entry(backend, verb or permission.value, job_id=job_id, about=about, where=where, reason=reason),
        ),
        many=many or where is not None,
        certain=certain,
    )
    with auditing(pending):
        yield
    if not pending.is_written and not quiet:
        kept.append_audit(pending.entry(0), within=within)


def require(
    backend: Backend,
    permission: Permission,
    verb: str | None = None,
    *,
    job_id: UUID | None = None,
    about: str | None = None,
) -> None:
    """`NotAuthorized` unless the authorizer permits it."""
    if backend.authorizer is not None:
        _ask(backend, permission, verb, job_id=job_id, about=about)


def is_permitted(backend: Backend, permission: Permission) -> bool:
    """Whether `require` would pass. Nothing is written down: for what a page leaves out, and nobody has asked for."""
    authorizer = backend.authorizer
    return authorizer is None or authorizer(backend.actor().name, permission, None)


def require_submission(backend: Backend, specs: list[JobSpec], within: object | None = None) -> None:
    """`NotAuthorized` unless every one of these jobs may be submitted."""
    for spec in specs if backend.authorizer is not None else ():
        _ask(
            backend,
            Permission.SUBMIT,
            None,
            job=job_of_spec(spec, backend),
            about=f"target:{spec.target}",
            within=within,
        )


def _ask(
    backend: Backend,
    permission: Permission,
    verb: str | None,
    *,
    job_id: UUID | None = None,
    job: Job | None = None,
    about: str | None = None,
    within: object | None = None,
) -> None:
    authorizer, actor = backend.authorizer, backend.actor()
    if job is None and job_id is not None:
        record = backend.store.get(job_id)
        job = None if record is None else job_of(record, backend)
    if authorizer is None or authorizer(actor.name, permission, job):
        return
    entry = _entry(
        backend, verb or permission.value, job_id=job_id, about=about, outcome=AuditOutcome.REFUSED
    )
    _write_down(backend, entry, within)
    named = f"job {job_id}" if job_id is not None else None if about is None else about.replace(":", " ", 1)
    raise NotAuthorized(permission, principal=actor.name, about=named)


def _write_down(backend: Backend, entry: AuditEntry, within: object | None) -> None:
    """
    Store the entry of a refusal, if that is possible: it is refused in any case.

    By itself, because the caller may roll back. Where the caller's transaction is the only one that can write, in that one.
    """
    store = backend.store
    joined = within if within is not None and not store.capabilities.concurrent_writers else None
    try:
        store.append_audit(_sealed(store, entry), within=joined)
    except (StoreError, AttributeError) as error:
        logger.warning(
            "the refusal of %s to %s is not in the audit log: %s", entry.verb, entry.principal, error
        )


def _entry(
    backend: Backend,
    verb: str,
    *,
    job_id: UUID | None = None,
    about: str | None = None,
    where: JobFilter | None = None,
    reason: str | None = None,
    outcome: AuditOutcome = AuditOutcome.DONE,
) -> AuditEntry:
    actor = backend.actor()
    return AuditEntry(
        id=new_id(),
        at=backend.now(),
        principal=actor.name,
        source=actor.source.value,
        verb=verb,
        job_id=job_id,
        object=None if about is None else _storable(about)[:OBJECT_LIMIT],
        filter=None if where is None else _sanitized(criteria_of(where), backend),
        reason=None if reason is None else backend.sanitized(reason)[:REASON_LIMIT],
        outcome=outcome.value,
    )


def _sealed(store: JobStore, entry: AuditEntry) -> AuditEntry:
    """*entry* as *store* keeps it: with a codec, what people wrote is encrypted."""
    seal: Callable[[AuditEntry], AuditEntry] | None = getattr(store, "sealed_audit", None)
    return entry if seal is None else seal(entry)


def _storable(text: str) -> str:
    """*text* with U+0000 and lone surrogates spelled out: no database keeps them."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def _sanitized(value: Any, backend: Backend) -> Any:
    if isinstance(value, dict):
        return {name: _sanitized(one, backend) for name, one in value.items()}
    if isinstance(value, list):
        return [_sanitized(one, backend) for one in value]
    return backend.sanitized(value) if isinstance(value, str) else value


# --- many jobs ----------------------------------------------------------------------------------------


class Permitted:
    """
    The part of a filter for which somebody has a permission.

    ``where`` is that part as a filter, if the authorizer has a scope, or there is no authorizer; ``is_empty``: there can be no
    such job. Otherwise ``asks``: each job has to be asked about.
    """

    def __init__(self, backend: Backend, permission: Permission, where: JobFilter) -> None:
        self._backend = backend
        self._permission = permission
        self.where: JobFilter = where
        self.is_empty = False
        self.asks = False
        authorizer = backend.authorizer
        if authorizer is None:
            return
        self._principal = backend.actor().name
        scope = authorizer.scope(self._principal, permission)
        try:
            narrowed = None if scope is None else both(where, scope)
        except ValueError:
            scope = narrowed = None
        self.asks = scope is None
        self.is_empty = scope is not None and narrowed is None
        if narrowed is not None:
            self.where = narrowed

    def allows(self, record: JobRecord | None) -> bool:
        """True if there is no need to ask, or the answer is yes."""
        authorizer = self._backend.authorizer
        if authorizer is None or not self.asks:
            return True
        job = None if record is None else job_of(record, self._backend)
        return authorizer(self._principal, self._permission, job)

    def each(self, find: Callable[[str | None], Page[JobRecord]]) -> Iterator[JobRecord]:
        """All permitted jobs of a search, page by page."""
        cursor: str | None = None
        while True:
            page = find(cursor)
            yield from (record for record in page if self.allows(record))
            cursor = page.next_cursor
            if cursor is None:
                return

    def page(
        self, find: Callable[[int, str | None], Page[JobRecord]], limit: int, cursor: str | None
    ) -> Page[JobRecord]:
        """One page of permitted jobs."""
        if self.is_empty:
            return Page([])
        if not self.asks:
            return find(limit, cursor)
        found: list[JobRecord] = []
        looked_at = 0
        while True:
            page = find(limit - len(found), cursor)
            found += [record for record in page if self.allows(record)]
            looked_at += len(page.items)
            cursor = page.next_cursor
            if cursor is None or len(found) == limit or looked_at >= LOOKED_AT:
                return Page(found, cursor)

    def change(
        self,
        find: Callable[[str | None], Page[JobRecord]],
        change: Callable[[JobFilter, int], int],
        limit: int,
    ) -> tuple[int, int]:
        """
        Change the permitted jobs, at most *limit*; how many were changed, and how many were left out.

        If each has to be asked about, each is changed by itself, as a filter that matches no other job.
        """
        if self.is_empty:
            return 0, 0
        if not self.asks:
            return change(self.where, limit), 0
        changed = left_out = 0
        cursor: str | None = None
        ids: list[UUID] = []
        while True:  # all are found before the first is changed: a change must not move a page
            page = find(cursor)
            permitted = [record.job_id for record in page if self.allows(record)]
            left_out += len(page.items) - len(permitted)
            ids += permitted
            cursor = page.next_cursor
            if cursor is None:
                break
        for job_id in sorted(ids):
            if changed >= limit:
                break
            changed += change(only(self.where, job_id), 1)
        return changed, left_out
