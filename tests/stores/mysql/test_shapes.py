"""The statements of the noun modules in the words of MySQL and MariaDB: all of them, and none that scans under a lock."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

import ratchet.stores.sql
from ratchet.model.options import Options
from ratchet.stores.sql.dialects.mysql import claims as mysql_claims
from ratchet.stores.sql.dialects.mysql.dialect import MysqlDialect
from ratchet.stores.sql.dialects.mysql.shapes import Shape, shape_of
from ratchet.stores.sql.store import SqlStore, open_store

# what is said in one statement on PostgreSQL, and never sent here
FUSED = ("SUCCEED", "_FUSED", "COUNT_AT_ONCE", "RELEASE_BY_EDGES")
TEMPLATES = (
    "_COUNT_HEAD",
    "_HEADS",
    "_NODES",
    "_COLD",
    "_QUEUED",
    "_REGISTRY",
    "_ROWS",
    "_STREAMS",
)  # with marks in it; what is made of them is in the list
FENCE = re.compile(r"/\* fence \*/(.*?)/\* end fence \*/", re.DOTALL)


def constants() -> Iterator[tuple[str, str]]:
    """Every complete statement of the noun modules, and the claim's, with a name."""
    for info in walk_packages(ratchet.stores.sql.__path__, "ratchet.stores.sql."):
        if not info.ispkg and ".dialects." not in info.name:
            yield from statements_of(import_module(info.name))
    yield from statements_of(mysql_claims)


def statements_of(module: Any) -> Iterator[tuple[str, str]]:
    for name, value in vars(module).items():
        texts = value if isinstance(value, tuple) else [value]
        if isinstance(value, Mapping):
            texts = list(value.values())
        for index, text in enumerate(texts):
            if not name.isupper() or name in (*FUSED, *TEMPLATES) or not isinstance(text, str):
                continue
            if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b.*\w", text, re.DOTALL):
                yield f"{module.__name__.rpartition('.')[2]}.{name}[{index}]", text


STATEMENTS = dict(constants())


@pytest.fixture(scope="module")
def store(mariadb_server: Any) -> Iterator[SqlStore]:
    url = mariadb_server.create_database()
    store = open_store(url)
    store.migrate()
    store.roll_back_schema()  # it makes a table of its own
    store.migrate()
    yield store
    store.close()
    mariadb_server.drop_database(url)


@pytest.fixture(scope="module")
def dialect() -> MysqlDialect:
    return MysqlDialect("mysql://localhost/x", Options())


def texts(shape: Shape) -> list[str]:
    return [text for text in (shape.main, shape.asked, shape.candidates, shape.otherwise) if text is not None]


def written(store: SqlStore, text: str) -> str:
    """A statement with something in the place of every bind."""
    statement = store.database.dialect.statement(text)
    places: dict[str, str] = defaultdict(lambda: "NULL")
    for name, kind in statement.lists.items():
        if name.endswith("__listed"):
            places[name] = "'[]'"
            continue
        one = {"uuid": "x'00', x'01'", "int": "1, 2", "time": "NOW(6)"}.get(kind, "'a', 'b'")
        places[name] = f"({one})"
    for name in statement.rowsets:
        places[name] = "'[]'"
        pairs = re.search(rf"\(([\w, ]+)\) IN %\({name}__pairs\)s", statement.text)
        if pairs:
            width = pairs[1].count(",") + 1
            places[f"{name}__pairs"] = f"(({', '.join(['NULL'] * width)}), ({', '.join(['1'] * width)}))"
    return re.sub(r"LIMIT NULL", "LIMIT 1", statement.text % places)


class TestEveryStatement:
    def test_they_are_found(self) -> None:
        """The list is that of the package, not of what this test knows."""
        assert len(STATEMENTS) > 120
        assert {"keys.ENTER_LEDGER[0]", "jobs.FORGET[11]", "completions.END_RUNS[0]"} <= set(STATEMENTS)

    @pytest.mark.parametrize("name", STATEMENTS)
    def test_the_server_understands_it(self, store: SqlStore, name: str) -> None:
        """Every part of it can be prepared: syntax, names, and what may be read while it is changed."""

        def prepare(session: Any) -> None:
            for text in texts(shape_of(STATEMENTS[name])):
                session.plain("PREPARE checked FROM " + session._writer.text(written(store, text)))
                session.plain("DEALLOCATE PREPARE checked")

        store.database.run(prepare)

    @pytest.mark.parametrize("name", [name for name, text in STATEMENTS.items() if FENCE.search(text)])
    def test_the_fence_stays(self, name: str) -> None:
        """What takes a job from its run still compares the claim, between the same comments, in every part."""
        for text in texts(shape_of(STATEMENTS[name])):
            if "{current}" not in text:  # the look for candidates, which the locked read repeats
                assert FENCE.search(text), text
                assert "claim_id" in FENCE.findall(text)[0]

    def test_nothing_is_returned_or_ignored(self) -> None:
        """Neither RETURNING, which MySQL lacks, nor INSERT IGNORE, which swallows bad data."""
        for text in STATEMENTS.values():
            said = " ".join(texts(shape_of(text))).upper()
            assert "RETURNING" not in said
            assert "ON CONFLICT" not in said
            assert "IGNORE" not in said

    def test_no_assignment_reads_what_another_one_writes(self) -> None:
        """MySQL assigns from left to right and sees its own new values, so none may depend on another."""
        for name, text in STATEMENTS.items():
            for part in texts(shape_of(text)):
                sets = re.search(r"\bSET (.*?)(?:\bWHERE\b|$)", part, re.DOTALL)
                if not part.startswith("UPDATE") or sets is None:
                    continue
                written_columns: set[str] = set()
                for column, value in re.findall(
                    r"(\w+) = ((?:[^,(]|\([^()]*(?:\([^()]*\)[^()]*)*\))*)", sets[1]
                ):
                    read = set(re.findall(r"(?<![:.\w])(?:\w+\.)?(\w+)", value)) - {column}
                    own = {one for one in written_columns if re.search(rf"(?<!\w\.)\b{one}\b", value)}
                    assert not (own & read) or f"run.{column}" in value, (name, column, own & read)
                    written_columns.add(column)


LOCKING = [
    name
    for name, text in STATEMENTS.items()
    if re.match(r"(UPDATE|DELETE)", shape_of(text).main) or "{for update" in shape_of(text).main
]


class TestLocks:
    @pytest.mark.parametrize("name", LOCKING)
    def test_no_scan_under_a_lock(self, store: SqlStore, name: str) -> None:
        """Whatever locks rows finds them by an index, on an empty table too, where a scan would be cheaper."""
        shape = shape_of(STATEMENTS[name])
        parts = [part for part in (shape.main, shape.asked, shape.otherwise) if part is not None]

        def plans(session: Any) -> list[tuple[Any, ...]]:
            return [row for part in parts for row in session.plain("EXPLAIN " + written(store, part)).rows]

        for row in store.database.run(plans):
            if row[2] == "scheduler_move":  # it has one row
                continue
            if row[2] is not None and not row[2].startswith(
                ("<", "t")
            ):  # neither a row set nor "no matching row"
                assert row[3] not in ("ALL", "index") or row[1] not in ("SIMPLE", "PRIMARY"), (name, row)


@pytest.mark.parametrize(
    ("portable", "said"),
    [
        (
            "INSERT INTO scheduler_queue (queue) VALUES (:q) ON CONFLICT (queue) DO NOTHING",
            Shape(
                "INSERT INTO scheduler_queue (queue) VALUES (:q) "
                "ON DUPLICATE KEY UPDATE scheduler_queue.queue = scheduler_queue.queue"
            ),
        ),
        (
            "UPDATE scheduler_job SET state = run.state, error = NULL FROM {rows run (job_id, state)} "
            "WHERE scheduler_job.job_id = run.job_id",
            Shape(
                "UPDATE {rows run (job_id, state)} STRAIGHT_JOIN scheduler_job "
                "FORCE INDEX (PRIMARY) SET scheduler_job.state = run.state, scheduler_job.error = NULL "
                "WHERE scheduler_job.job_id = run.job_id"
            ),
        ),
        (
            "UPDATE scheduler_node SET beat = beat + 1 WHERE node_id {in ids text} RETURNING node_id",
            Shape(
                "UPDATE scheduler_node FORCE INDEX (PRIMARY) SET beat = beat + 1 WHERE node_id {in ids text}",
                asked="SELECT node_id FROM scheduler_node FORCE INDEX (PRIMARY) WHERE node_id {in ids text} FOR UPDATE",
            ),
        ),
        (
            "SELECT job_id FROM scheduler_job WHERE held_at < :x ORDER BY held_at LIMIT :n {for update skip locked}",
            Shape(
                "SELECT job_id FROM scheduler_job FORCE INDEX (PRIMARY) WHERE job_id {in candidates uuid} "
                "AND (held_at < :x) ORDER BY held_at {for update skip locked}",
                candidates="SELECT job_id FROM scheduler_job WHERE held_at < :x ORDER BY held_at LIMIT :n {current}",
            ),
        ),
        (
            "INSERT INTO scheduler_lock AS held (lock_name, token, locked_at) VALUES (:name, :token, :now) "
            "ON CONFLICT (lock_name) DO UPDATE SET token = excluded.token, "
            "locked_at = CASE WHEN held.token = excluded.token THEN held.locked_at ELSE excluded.locked_at END "
            "WHERE held.locked_at < :now",
            Shape(
                "INSERT INTO scheduler_lock (lock_name, token, locked_at) VALUES (:name, :token, :now) "
                "ON DUPLICATE KEY UPDATE scheduler_lock.lock_name = scheduler_lock.lock_name",
                otherwise="UPDATE scheduler_lock AS held SET "
                "locked_at = CASE WHEN held.token = :token THEN held.locked_at ELSE :now END, token = :token "
                "WHERE held.lock_name = :name AND (held.locked_at < :now)",
            ),
        ),
        (
            "DELETE FROM scheduler_job_queue WHERE job_id {in ids uuid} AND "
            "((job_id, claim_id) IN (SELECT run.job_id, run.claim_id FROM {rows run (job_id, claim_id)})) IS TRUE",
            Shape(
                "DELETE scheduler_job_queue FROM (SELECT UNHEX(c0) AS id FROM JSON_TABLE(:ids__listed, '$[*]' "
                "COLUMNS (c0 CHAR(32) PATH '$' ERROR ON ERROR)) AS t) AS listed STRAIGHT_JOIN scheduler_job_queue "
                "FORCE INDEX (PRIMARY) WHERE scheduler_job_queue.job_id = listed.id "
                "AND (job_id, claim_id) IN :run__pairs"
            ),
        ),
        (
            "SELECT signal, j.signal, ':signal' FROM x WHERE signal = :signal",
            Shape("SELECT `signal`, j.signal, ':signal' FROM x WHERE `signal` = :signal"),
        ),
    ],
    ids=["insert", "update from", "returning", "range", "upsert", "pairs", "reserved"],
)
def test_shapes(portable: str, said: Shape) -> None:
    """What each shape becomes."""
    found = shape_of(portable)
    assert [" ".join(text.split()) for text in texts(found)] == texts(said)
    assert found.fresh is None


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO scheduler_queue (queue) VALUES (:q) RETURNING queue",
        "UPDATE scheduler_job SET state = r.state FROM {rows r (job_id, state)} WHERE true RETURNING job_id",
        "SELECT 1 FROM x WHERE ((a, b) IN (SELECT r.b, r.a FROM {rows r (a int, b int)})) IS TRUE",
    ],
)
def test_unknown_shapes_are_errors(text: str) -> None:
    """A statement that would mean something else here is a mistake when it is first used, not wrong data."""
    with pytest.raises(ValueError, match=r"known|order"):
        shape_of(text)
