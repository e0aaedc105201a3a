"""Copies rows kind by kind, with how far it has come beside them, and compares both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from ratchet.model.moves import (
    MoveOvertaken,
    MoveRecord,
    MoveRefused,
    NeutralRow,
    RowKind,
    Tally,
    key_from,
    key_of,
    plain_key,
    tally,
)
from ratchet.moving.reports import Clockwork
from ratchet.spi.movable import MovableStore

#: Rows of one portion, and of one transaction.
PORTION = 1000


def portions(
    store: MovableStore, kind: RowKind, after: tuple[Any, ...] | None = None
) -> Iterator[list[NeutralRow]]:
    """The rows of a kind; the next portion is read while the caller deals with one."""
    size = PORTION
    with ThreadPoolExecutor(1, thread_name_prefix="ratchet-move") as reader:

        def read(beyond: tuple[Any, ...] | None) -> Future[list[NeutralRow]]:
            return reader.submit(store.neutral_rows, kind, after=beyond, limit=size)

        coming = read(after)
        while rows := coming.result():
            if len(rows) == size:
                coming = read(key_of(kind, rows[-1]))
            yield rows
            if len(rows) < size:
                return


def copy_rows(
    source: MovableStore, target: MovableStore, record: MoveRecord, clockwork: Clockwork
) -> tuple[MoveRecord, int]:
    """
    Copy what has not arrived yet; the record at the end, and how many jobs were copied.

    A portion and how far the move has come with it are one transaction of the target: killed at any point, the next call goes on
    from there. `MoveOvertaken` if another call does so while this one is still at it.
    """
    jobs = 0
    for kind in RowKind:
        if kind.value in record.finished:
            continue
        reached = record.reached.get(kind.value)
        after = None if reached is None else key_from(kind, reached)
        for rows in portions(source, kind, after):
            record = replace(record, reached=record.reached | {kind.value: plain_key(kind, rows[-1])})
            target.put_rows(kind, rows, record=record)
            clockwork.add(kind, len(rows))
            jobs += len(rows) if kind in (RowKind.JOB, RowKind.ARCHIVED_JOB) else 0
        record = replace(record, finished=(*record.finished, kind.value))
        if not target.save_move(record, was=record):
            raise MoveOvertaken
    return record, jobs


def tallies_of(store: MovableStore, clockwork: Clockwork | None = None) -> dict[RowKind, Tally]:
    """How many rows of each kind a store has, and their checksums."""
    found = {}
    for kind in RowKind:
        total = Tally()
        for rows in portions(store, kind):
            total = total.plus(tally(kind, rows))
            if clockwork is not None:
                clockwork.add(kind, len(rows))
        found[kind] = total
    return found


def require_equal(
    there: Mapping[RowKind, Tally], here: Mapping[RowKind, Tally], before: Mapping[str, Tally], where: str
) -> None:
    """Refuse to go on where the target holds anything but what the source has, and what it had *before*."""
    wrong = []
    for kind in RowKind:
        wanted = there.get(kind, Tally()).plus(before.get(kind.value, Tally()))
        found = here.get(kind, Tally())
        if wanted.count != found.count:
            wrong.append(f"{kind}: {wanted.count} rows were to come, {found.count} are there")
        elif wanted != found:
            wrong.append(f"{kind}: {found.count} rows, but not the same ones (checksums differ)")
    if wrong:
        raise MoveRefused(
            f"{where} does not hold what was moved: {'; '.join(wrong)}. Nothing was opened. Somebody else has written to one of the "
            f"sides; give the move up, and begin again with an empty target"
        )


def filled_with(store: MovableStore) -> RowKind | None:
    """The first kind of which a store has rows; None: it is empty. An audit log that says who made the tables does not count."""
    for kind in RowKind:
        if kind is not RowKind.AUDIT and store.neutral_rows(kind, limit=1):
            return kind
    return None


def tally_of(store: MovableStore, kind: RowKind) -> Tally:
    """The tally of one kind."""
    total = Tally()
    for rows in portions(store, kind):
        total = total.plus(tally(kind, rows))
    return total
