"""The limits of concurrency keys and rate keys, stored before the first job that has them."""

from __future__ import annotations

from ratchet.api.backend import Backend
from ratchet.model.cluster import KeyLimit
from ratchet.model.errors import InvalidJob
from ratchet.stores.stream_cache import Trust

#: Limits that a process remembers (a key per customer can make many); beyond it, it starts over.
REMEMBERED = 20_000


class KeyLimits:
    """
    Stores limits of keys, each once an hour at most.

    Housekeeping removes a limit when no submission has asked for it in days, so what this process knows of one does not
    hold for ever.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[str, KeyLimit] = {}
        self._trust = Trust(monotonic=backend.monotonic)

    def ensure(self, name: str, limit: KeyLimit, *, joined: bool) -> None:
        """See `Backend.ensure_limit`."""
        if self._trust.is_over() or len(self._known) >= REMEMBERED:
            self._known = {}
        if self._known.get(name) == limit:
            return
        store = self._backend.store
        if joined and not store.capabilities.concurrent_writers:
            # Writing it would wait for the very transaction that is being joined.
            if not any(stored.name == name and limit.is_in(stored) for stored in store.limits()):
                raise InvalidJob(
                    f"the limit of the key {name!r} is not stored yet, and {store.name} has one writer at a time: "
                    f"{limit.advice(name)} before your transaction begins"
                )
        else:
            # a store that somebody wrote for an earlier version never removes one
            ensure = store.ensure_limit if hasattr(store, "ensure_limit") else store.set_limit
            ensure(
                name,
                concurrent=limit.concurrent,
                rate=limit.rate,
                period=limit.period,
                now=self._backend.now(),
            )
        self._known[name] = limit
