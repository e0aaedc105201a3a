"""An optional ability of a store: to go through the texts that it keeps, and to put others in their place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from ratchet.model.stored_values import Place, ValueChange, ValueRow


class ValueStore(Protocol):
    """A store whose values can be moved to another key (``ratchet keys``)."""

    def value_rows(self, place: Place, *, after: Any = None, limit: int) -> list[ValueRow]:
        """The next *limit* rows of *place* after a key, in the order of their keys, as they are stored; empty at the end."""
        ...

    def swap_values(self, place: Place, changes: Sequence[ValueChange]) -> int:
        """
        Make these changes, in one transaction; how many rows were changed.

        A row that has other texts by now, or is gone, is left alone: whoever changed it has won.
        """
        ...

    def set_keys(self, keys: Mapping[UUID, Collection[str]]) -> int:
        """
        From now on these jobs need these keys, and no others: their streams say so, and only nodes that have the keys claim them.

        How many jobs were changed. A job that runs stays where it is until it has ended, or is retried by hand.
        """
        ...
