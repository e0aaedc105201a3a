"""``scheduler.audit``: who changed what."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ratchet.api.authorization import require
from ratchet.api.backend import Backend
from ratchet.api.checks import count_of, id_of, member_of, moment_of, text_of
from ratchet.model.audit import OBJECT_LIMIT, AuditEntry, AuditFilter, AuditOutcome, AuditSource
from ratchet.model.errors import ConfigurationError, InvalidJob
from ratchet.model.job import Page
from ratchet.model.permissions import Permission

_CRITERIA: dict[str, Callable[[Any, str], Any]] = {
    "principal": text_of,
    "source": lambda value, name: member_of(AuditSource, value, name).value,
    "verb": text_of,
    "job_id": lambda value, name: id_of(value),
    "object": lambda value, name: text_of(value, name, limit=OBJECT_LIMIT),
    "outcome": lambda value, name: member_of(AuditOutcome, value, name).value,
    "after": moment_of,
    "before": moment_of,
}


class Audit:
    """Reads the audit log."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def find(
        self, where: AuditFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[AuditEntry]:
        """One page of matching entries, newest first; pass ``page.next_cursor`` on for the next."""
        if where is not None and not isinstance(where, AuditFilter):
            raise InvalidJob(f"the audit log is searched with an AuditFilter, not {where!r}")
        most = count_of(limit, "the limit of a page", at_least=1, at_most=1000)
        checked = _checked(where or AuditFilter())
        require(self._backend, Permission.AUDIT, about="audit log")
        store = self._backend.store
        if not hasattr(store, "find_audit"):
            raise ConfigurationError(f"the store {store.name!r} keeps no audit log")
        return store.find_audit(checked, limit=most, cursor=cursor)


def _checked(where: AuditFilter) -> AuditFilter:
    given = {
        name: check(value, name)
        for name, check in _CRITERIA.items()
        if (value := getattr(where, name)) is not None
    }
    return dataclasses.replace(where, **given)
