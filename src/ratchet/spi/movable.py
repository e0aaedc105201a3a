"""An optional ability of a store: to be moved to another one, whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ratchet.model.moves import Fence, MoveRecord, NeutralRow, RowKind, RunningJob


class MovableStore(Protocol):
    """A store that `ratchet db move`, `export` and `import` can read, fill and fence off."""

    def neutral_rows(
        self, kind: RowKind, *, after: tuple[Any, ...] | None = None, limit: int
    ) -> list[NeutralRow]:
        """The next *limit* rows of a kind after a key, in the order of their keys; empty at the end. A claim is not part of a job."""
        ...

    def put_rows(
        self, kind: RowKind, rows: Sequence[NeutralRow], *, record: MoveRecord | None = None
    ) -> None:
        """
        Store rows under their keys; one that is there already stays as it is.

        *record* is written down with them, in one transaction, and lets them through a fence of `Fence.FILLING`. `MoveOvertaken` if
        another move, state or holder is written down by now.
        """
        ...

    def move_record(self) -> MoveRecord | None:
        """The move that this store is a side of; None: there was none."""
        ...

    def save_move(self, record: MoveRecord | None, *, was: MoveRecord | None) -> bool:
        """
        Write down a move in place of *was*, or forget it (None): True if this call has made the change.

        False if it is not *was* that is written down (`same_move`); None: no move at all.
        """
        ...

    def fence_off(self, fence: Fence, reason: str) -> None:
        """
        Refuse claims, or all changes, from now on, to every process on this store, whatever its version; `StoreMoved` with *reason*.

        When it returns, no transaction that began before can still do what is refused. Doing it again changes nothing.
        """
        ...

    def lift_fence(self) -> None:
        """Refuse nothing any more."""
        ...

    def held_claims(self, *, limit: int) -> list[RunningJob]:
        """Claims that are held: RUNNING jobs, and runs of others whose code may still be running."""
        ...

    def origin(self) -> str:
        """What tells this installation from every other one."""
        ...
