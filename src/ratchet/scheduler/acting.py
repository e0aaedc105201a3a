"""Who acts through a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from ratchet.api.backend import Actor, ScopedAuthorizer
from ratchet.model.audit import AuditSource
from ratchet.scheduler.parts import Parts

#: Who acts in this context, by the id of the core.
_acting: ContextVar[Mapping[int, Actor]] = ContextVar("ratchet_acting", default={})  # noqa: B039 - never changed in place


class Acting:
    """The part of a core that knows who acts, and who may."""

    parts: Parts
    #: On whose behalf the calling code submits.
    caller: Callable[[], str | None]
    #: Says who may do what; None: everything is permitted.
    authorizer: ScopedAuthorizer | None

    @contextmanager
    def acting_as(self, principal: str | None, source: AuditSource) -> Iterator[None]:
        """Whatever the block does, *principal* does it, through *source*."""
        self.caller = self._acting_caller  # who never acts for somebody pays nothing for it
        token = _acting.set({**_acting.get(), id(self): Actor(principal, source)})
        try:
            yield
        finally:
            _acting.reset(token)

    def actor(self) -> Actor:
        """Who the calling code acts for, and through what."""
        acting = _acting.get().get(id(self))
        if acting is not None:
            return acting
        provider = self.parts.principal
        return Actor(None if provider is None else provider.current(), AuditSource.API)

    def _acting_caller(self) -> str | None:
        return self.actor().name
