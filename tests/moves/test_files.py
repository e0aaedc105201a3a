"""A store as a file, and back; and what a move, an export and an import refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet import ManualClock, Options
from ratchet.model.moves import MoveRefused, MoveState, NeutralRow, RowKind, line_of, row_of
from ratchet.moving import export_store, give_up, import_file, move
from ratchet.stores import open_store
from ratchet.stores.sql.store import SqlStore
from tests.moves import samples
from tests.moves.conftest import MakeUrl


def rows(url: str) -> dict[RowKind, object]:
    store = open_store(url, Options())
    try:
        return dict(samples.rows_of(store))
    finally:
        store.close()


def test_a_file_holds_everything(filled: str, make_url: MakeUrl, tmp_path: Path) -> None:
    """An export and an import give the same rows; the store that was exported is open again, and the other one, too."""
    path, target = tmp_path / "jobs.jsonl", make_url("sqlite")
    before = rows(filled)
    report = export_store(filled, path)
    assert import_file(path, target).tallies == report.tallies
    assert rows(target) == before == rows(filled)
    for url in (filled, target):
        store = open_store(url, Options())
        samples.scheduler_on(store, ManualClock()).enqueue_now(samples.fine, 1)
        store.close()
    lines = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["kind"] == "ratchet-export"
    assert len(lines) == report.rows + 2
    assert not list(tmp_path.glob("*.part"))


def test_every_line_is_the_row(filled: str) -> None:
    """A row that goes through its line is the same row, extras included."""
    store = open_store(filled, Options())
    assert isinstance(store, SqlStore)
    for kind in RowKind:
        for row in store.neutral_rows(kind, limit=1000):
            given = {name: value for name, value in row.items() if value is not None}
            found, again = row_of(json.loads(line_of(kind, row)))
            assert (found, {name: value for name, value in again.items() if value is not None}) == (
                kind,
                given,
            )
    store.close()


def test_an_import_goes_on(
    filled: str, make_url: MakeUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that broke off in the middle goes on where it was; until then no node can start."""
    path, target = tmp_path / "jobs.jsonl", make_url("sqlite")
    export_store(filled, path)
    plain, left = SqlStore.put_rows, 9

    def breaks(self: SqlStore, kind: RowKind, found: list[NeutralRow], **given: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        plain(self, kind, found, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlStore, "put_rows", breaks)
    with pytest.raises(KeyboardInterrupt):
        import_file(path, target)
    monkeypatch.setattr(SqlStore, "put_rows", plain)
    with pytest.raises(MoveRefused, match="filled"):
        give_up(target)
    report = import_file(path, target)
    assert report.resumed
    assert 0 < report.copied < report.rows
    assert rows(target) == rows(filled)


def test_files_that_are_refused(filled: str, make_url: MakeUrl, tmp_path: Path) -> None:
    """A file that was cut off, is another one, or has a line that is none; and an export over a file."""
    path = tmp_path / "jobs.jsonl"
    export_store(filled, path)
    with pytest.raises(MoveRefused, match="there already"):
        export_store(filled, path)
    whole = path.read_text(encoding="utf-8")
    cut = tmp_path / "cut.jsonl"
    cut.write_text(whole[: len(whole) // 2], encoding="utf-8")
    with pytest.raises(MoveRefused, match="cut off"):
        import_file(cut, make_url("sqlite"))
    cut.write_text("a,b,c\n", encoding="utf-8")
    with pytest.raises(MoveRefused, match="no export"):
        import_file(cut, make_url("sqlite"))
    with pytest.raises(MoveRefused, match="cannot be read"):
        import_file(tmp_path / "nothing", make_url("sqlite"))
    lines = whole.splitlines(keepends=True)
    cut.write_text("".join([*lines[:5], '{"kind":"queue"}\n', *lines[5:]]), encoding="utf-8")
    with pytest.raises(MoveRefused, match=r"line 6 of .* without queue"):
        import_file(cut, make_url("sqlite"))
    cut.write_text("".join([*lines[:5], *lines[6:]]), encoding="utf-8")
    with pytest.raises(MoveRefused, match=r"limit: 4 rows were to come, 3 are there|rows were to come"):
        import_file(cut, make_url("sqlite"))


def test_moves_that_are_refused(filled: str, make_url: MakeUrl, clock: ManualClock) -> None:
    """To itself, to a store that has jobs, from one that is not there, and back."""
    with pytest.raises(MoveRefused, match="same store"):
        move(filled, filled)
    other = make_url("sqlite")
    store = open_store(other, Options())
    samples.scheduler_on(store, clock).enqueue_now(samples.fine, 1)
    with pytest.raises(MoveRefused, match="not empty: it has rows of job"):
        move(filled, other, dry_run=True)
    with pytest.raises(MoveRefused, match="not empty: it has rows of job"):
        move(filled, other)
    store.close()
    with pytest.raises(MoveRefused, match="there is no database"):
        move("sqlite:////nowhere/at/all.db", other)
    target = make_url("sqlite")
    assert move(filled, target, dry_run=True).dry_run
    assert not Path(target.removeprefix("sqlite:///")).exists(), "a dry run makes nothing"
    done = move(filled, target)
    assert move(filled, target).tallies == {}, "the same command again changes nothing"
    with pytest.raises(MoveRefused, match="were moved to"):
        move(filled, make_url("sqlite"))
    with pytest.raises(MoveRefused, match="not empty"):
        move(target, filled)
    with pytest.raises(MoveRefused, match="would run twice"):
        give_up(filled)
    with pytest.raises(MoveRefused, match="export that store"):
        export_store(filled, Path(target.removeprefix("sqlite:///")).with_suffix(".jsonl"))
    onwards = make_url("sqlite")
    assert move(target, onwards).jobs == done.jobs, "from where it is now, it can be moved on"


def test_a_target_that_somebody_else_wrote_to(
    filled: str, make_url: MakeUrl, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides are compared: a row that is missing or too many is told, the target stays closed, and the move can be given up."""
    target, plain = make_url("sqlite"), SqlStore.put_rows

    def loses(self: SqlStore, kind: RowKind, found: list[NeutralRow], **given: object) -> None:
        if kind is RowKind.LOG:
            found = [{**found[0], "message": "another"}, *found[1:]]
        plain(self, kind, found[1:] if kind is RowKind.RUN else found, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlStore, "put_rows", loses)
    with pytest.raises(MoveRefused, match=r"run: \d+ rows were to come.*log: .*checksums differ"):
        move(filled, target)
    monkeypatch.setattr(SqlStore, "put_rows", plain)
    assert give_up(filled)
    store = open_store(target, Options())
    assert isinstance(store, SqlStore)
    record = store.move_record()
    assert record is not None
    assert record.state is MoveState.FILLING
    store.close()
    with pytest.raises(MoveRefused, match="given up"):
        move(filled, target)
    assert move(filled, make_url("sqlite")).jobs
