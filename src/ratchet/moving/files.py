"""
A store as a file of lines, and a file as a store.

The first line says what the file is, the last one how many rows of each kind there are and what their checksums are; each line between is
one row, as `docs/reference/export.md` describes it. A file without its last line was cut off, and is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.identifiers import new_id
from ratchet.model.moves import (
    Fence,
    MoveOvertaken,
    MoveRecord,
    MoveRefused,
    MoveRole,
    MoveState,
    NeutralRow,
    RowKind,
    Tally,
    line_of,
    row_of,
    same_move,
    tally,
)
from ratchet.model.options import Options
from ratchet.moving.copying import PORTION, portions, require_equal, tallies_of, tally_of
from ratchet.moving.moves import WAIT, close, drain, require_unused
from ratchet.moving.reports import Clockwork, MoveReport, OnProgress, Stage, expected_rows, unheard
from ratchet.moving.stores import Side, opened

FORMAT: Final = 1
_FIRST: Final = "ratchet-export"
_LAST: Final = "end"
#: Bytes at the end of a file in which its last line is looked for.
_TAIL: Final = 1 << 16


class Header(Struct, frozen=True, kw_only=True):
    """The first line of an export."""

    kind: str
    format: int
    export_id: str
    origin: str
    version: str
    exported_at: datetime


class Trailer(Struct, frozen=True, kw_only=True):
    """The last line of an export."""

    kind: str
    rows: dict[RowKind, Tally]


def export_store(
    source: str,
    path: Path,
    *,
    options: Options | None = None,
    wait: Duration = WAIT,
    on_progress: OnProgress = unheard,
) -> MoveReport:
    """
    Write every row of the store *source* to a new file.

    Meanwhile the store takes neither claims nor writes, so that the file is the store at one moment; running jobs may end within *wait*
    first. At the end it is open again, and its nodes go on. The file gets its name when it is whole; an export that was
    interrupted leaves the store closed until it is run again, or `give_up` opens it.
    """
    if path.exists():
        raise MoveRefused(f"{path} is there already; an export makes a new file")
    patience = to_timedelta(wait, "wait")
    with opened(source, options if options is not None else Options()) as there:
        record = _close(there, path, patience, on_progress)
        started = time.monotonic()
        clockwork = Clockwork(Stage.COPY, on_progress, expected_rows(there.store))
        part = path.with_name(path.name + ".part")
        try:
            with part.open("wb") as out:
                tallies = _write(there, out, clockwork)
                out.flush()
                os.fsync(out.fileno())
            part.rename(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        finally:
            if there.movable.save_move(None, was=record):
                there.movable.lift_fence()
        return MoveReport(
            tallies=tallies,
            copied=clockwork.rows,
            copied_jobs=sum(tallies[kind].count for kind in (RowKind.JOB, RowKind.ARCHIVED_JOB)),
            seconds=time.monotonic() - started,
        )


def _close(there: Side, path: Path, wait: timedelta, on_progress: OnProgress) -> MoveRecord:
    store = there.movable
    before = store.move_record()
    if before is not None and before.state not in (MoveState.EXPORTING, MoveState.DONE, MoveState.MOVED):
        raise MoveRefused(
            f"{there.shown} is a side of a move with {before.other}; finish that first, or give it up"
        )
    if before is not None and before.state is MoveState.MOVED:
        raise MoveRefused(f"the jobs of {there.shown} were moved to {before.other}; export that store")
    reason = "this store is being exported; it opens again by itself"
    record = MoveRecord(
        move_id=str(new_id()),
        role=MoveRole.SOURCE,
        state=MoveState.EXPORTING,
        other=str(path),
        origin=store.origin(),
        begun_at=datetime.now(UTC),
    )
    if not store.save_move(record, was=before):
        raise MoveOvertaken
    try:
        close(there, Fence.CLAIMS, reason, record)
        drain(there, on_progress, record, wait=wait, hand_back=False, stop=False)
        close(there, Fence.WRITES, reason, record)
    except BaseException:
        if store.save_move(None, was=record):
            store.lift_fence()
        raise
    return record


def _write(there: Side, out: BinaryIO, clockwork: Clockwork) -> dict[RowKind, Tally]:
    header = Header(
        kind=_FIRST,
        format=FORMAT,
        export_id=str(new_id()),
        origin=there.movable.origin(),
        version=version("ratchet-jobs"),
        exported_at=datetime.now(UTC),
    )
    out.write(msgspec.json.encode(header) + b"\n")
    tallies = {}
    for kind in RowKind:
        total = Tally()
        for rows in portions(there.movable, kind):
            out.write(b"".join(line_of(kind, row) + b"\n" for row in rows))
            total = total.plus(tally(kind, rows))
            clockwork.add(kind, len(rows))
        tallies[kind] = total
    out.write(msgspec.json.encode(Trailer(kind=_LAST, rows=tallies)) + b"\n")
    return tallies


# --- back ----------------------------------------------------------------------------------------


def import_file(
    path: Path, target: str, *, options: Options | None = None, on_progress: OnProgress = unheard
) -> MoveReport:
    """
    Fill an empty store with what `export_store` has written; the same call goes on after a crash.

    `MoveRefused` if the file was cut off, has a line that is none, or if the store holds anything else at the end. No node may
    work on the store before that.
    """
    header, trailer = _ends(path)
    with opened(target, options if options is not None else Options(), new=True) as here:
        record = _begun(here, header, path)
        if record.state is MoveState.DONE:
            return MoveReport(tallies=trailer.rows, resumed=True)
        if record.state is MoveState.ARRIVED:
            return _opened(here, record, trailer)
        resumed = record.lines > 0
        started = time.monotonic()
        expected = sum(one.count for one in trailer.rows.values())
        clockwork = Clockwork(Stage.COPY, on_progress, expected)
        jobs = 0
        for kind, rows in _portions(path, record.lines):
            record = replace(record, lines=record.lines + len(rows))
            here.movable.put_rows(kind, rows, record=record)
            clockwork.add(kind, len(rows))
            jobs += len(rows) if kind in (RowKind.JOB, RowKind.ARCHIVED_JOB) else 0
        found = tallies_of(here.movable, Clockwork(Stage.COMPARE, on_progress, expected))
        if not same_move(here.movable.move_record(), record):
            raise MoveOvertaken
        require_equal(trailer.rows, found, record.before, here.shown)
        # From here on the rows are work. Another call that is still at it can put none any more.
        whole = replace(record, state=MoveState.ARRIVED)
        if not here.movable.save_move(whole, was=record):
            raise MoveOvertaken
        return replace(
            _opened(here, whole, trailer),
            copied=clockwork.rows,
            copied_jobs=jobs,
            seconds=time.monotonic() - started,
            resumed=resumed,
        )


def _begun(here: Side, header: Header, path: Path) -> MoveRecord:
    """The record of this import, which this call holds from now on, behind the fence; or of one that has arrived."""
    origin, store = f"export {header.export_id}", here.movable
    found = store.move_record()
    ours = found is not None and found.origin == origin and found.role is MoveRole.TARGET
    if ours and found is not None and found.state is not MoveState.FILLING:
        return found
    if not ours:
        if found is not None and found.state not in (MoveState.DONE, MoveState.MOVED):
            raise MoveRefused(f"{here.shown} is a side of a move with {found.other}; take an empty database")
        require_unused(here, "an import")
    record = MoveRecord(
        move_id=str(new_id()),
        role=MoveRole.TARGET,
        state=MoveState.FILLING,
        other=path.name,
        origin=origin,
        begun_at=datetime.now(UTC),
    )
    if ours and found is not None:
        record = found
    record = replace(record, holder=str(new_id()))
    if not store.save_move(record, was=found):
        raise MoveOvertaken
    reason = f"nothing may be submitted or run here yet: an import of {path.name} is still arriving"
    close(here, Fence.FILLING, reason, record)
    if record.lines == 0:
        # behind the fence, where nothing can come any more
        try:
            require_unused(here, "an import")
        except MoveRefused:
            if store.save_move(None, was=record):
                store.lift_fence()
            raise
        record = replace(record, before={RowKind.AUDIT.value: tally_of(store, RowKind.AUDIT)})
        if not store.save_move(record, was=record):
            raise MoveOvertaken
    return record


def _opened(here: Side, record: MoveRecord, trailer: Trailer) -> MoveReport:
    """Open a store whose import is whole."""
    if same_move(here.movable.move_record(), record):
        here.movable.lift_fence()
        here.movable.save_move(replace(record, state=MoveState.DONE), was=record)
    return MoveReport(tallies=trailer.rows, resumed=True)


def _ends(path: Path) -> tuple[Header, Trailer]:
    """The first and the last line."""
    try:
        with path.open("rb") as file:
            first = file.readline()
            file.seek(max(0, path.stat().st_size - _TAIL))
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    except OSError as error:
        raise MoveRefused(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        header = msgspec.json.decode(first, type=Header)
    except msgspec.DecodeError as error:
        raise MoveRefused(
            f"{path} is no export of Ratchet: its first line is not one of `ratchet db export`"
        ) from error
    if header.kind != _FIRST or header.format != FORMAT:
        raise MoveRefused(
            f"{path} has format {header.format} of {header.kind}; this version reads format {FORMAT} of {_FIRST}"
        )
    try:
        trailer = msgspec.json.decode(last, type=Trailer)
        if trailer.kind != _LAST:
            raise msgspec.ValidationError("another line")
    except msgspec.DecodeError as error:
        raise MoveRefused(
            f"{path} was cut off: its last line is not the one with the checksums; export again"
        ) from error
    return header, trailer


def _portions(path: Path, done: int) -> Iterator[tuple[RowKind, list[NeutralRow]]]:
    """The rows after the first *done* ones, in portions of one kind."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    kind: RowKind | None = None
    rows: list[NeutralRow] = []
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if number <= done:  # the first line is none
                continue
            if line.startswith(b'{"kind":"end"'):
                break
            try:
                found, row = row_of(decoder.decode(line))
            except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
                raise MoveRefused(f"line {number + 1} of {path} is no row of an export: {error}") from error
            if rows and (found is not kind or len(rows) >= PORTION):
                assert kind is not None  # of the rows
                yield kind, rows
                rows = []
            kind = found
            rows.append(row)
    if rows and kind is not None:
        yield kind, rows
