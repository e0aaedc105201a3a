"""The small language of the SQL texts, and its translation."""

from __future__ import annotations

import pytest

from ratchet.model.options import Options
from ratchet.stores.sql.dialect import Dialect
from ratchet.stores.sql.urls import dialect_of


@pytest.fixture
def sqlite() -> Dialect:
    return dialect_of("sqlite:///:memory:", Options())


@pytest.fixture
def postgresql() -> Dialect:
    return dialect_of("postgresql://localhost/x", Options())


def test_binds_and_percent_signs(sqlite: Dialect, postgresql: Dialect) -> None:
    """A bind becomes the driver's; a percent sign survives psycopg's formatting, also in literals and comments."""
    text = "SELECT a % :b, '100% :c', \":d\" -- 5% :e\n FROM t WHERE x = :b"
    assert sqlite.statement(text).text == text
    assert (
        postgresql.statement(text).text
        == "SELECT a %% %(b)s, '100%% :c', \":d\" -- 5%% :e\n FROM t WHERE x = %(b)s"
    )


def test_membership(sqlite: Dialect, postgresql: Dialect) -> None:
    """A list is an array on PostgreSQL, so that the planner uses the index, and JSON on SQLite."""
    text = "job_id {in ids uuid} AND n {not in ns int}"
    assert sqlite.statement(text).text == (
        "job_id IN (SELECT value FROM json_each(:ids)) AND n NOT IN (SELECT value FROM json_each(:ns))"
    )
    assert postgresql.statement(text).text == (
        "job_id = ANY (%(ids)s::uuid[]) AND n <> ALL (%(ns)s::bigint[])"
    )


def test_row_sets_know_the_kinds_of_schema_columns(sqlite: Dialect, postgresql: Dialect) -> None:
    """Only columns that the schema does not have name their kind."""
    text = "SELECT * FROM {rows r (job_id, started_at, delta int)}"
    assert postgresql.statement(text).text == (
        "SELECT * FROM unnest(%(r__0)s::uuid[], %(r__1)s::timestamptz[], %(r__2)s::bigint[])"
        " AS r(job_id, started_at, delta)"
    )
    assert postgresql.statement(text).rowsets == {"r": ("uuid", "time", "int")}
    assert "json_extract(value, '$[2]') AS delta" in sqlite.statement(text).text


@pytest.mark.parametrize(
    ("macro", "clause"),
    [
        ("{for update}", "FOR UPDATE"),
        ("{for  update of q skip locked}", "FOR UPDATE OF q SKIP LOCKED"),
        ("{for share}", "FOR SHARE"),
    ],
)
def test_locks(sqlite: Dialect, postgresql: Dialect, macro: str, clause: str) -> None:
    """SQLite has one writer and needs no row locks."""
    assert postgresql.statement(macro).text == clause
    assert sqlite.statement(macro).text == ""


def test_a_schema_qualifies_our_tables_and_nothing_else() -> None:
    """Names that are already qualified, columns and literals stay; a caller's search_path is never touched."""
    dialect = dialect_of("postgresql://localhost/x", Options(schema='od"d'))
    text = "SELECT j.scheduler_x, 'scheduler_job' FROM scheduler_job j, other.scheduler_job, my_scheduler_job"
    assert dialect.statement(text).text == (
        'SELECT j.scheduler_x, \'scheduler_job\' FROM "od""d".scheduler_job j, other.scheduler_job, my_scheduler_job'
    )


@pytest.mark.parametrize("text", ["{unknown}", "{in ids integer}", "{rows r (x number)}", "a::text", "x { y"])
def test_mistakes_are_found_when_the_text_is_used(sqlite: Dialect, text: str) -> None:
    """An unknown macro or kind, a stray brace and a cast of one product are errors, not SQL."""
    with pytest.raises(ValueError, match=r"macro|kind|portable"):
        sqlite.statement(text)


def test_a_text_is_translated_once(sqlite: Dialect) -> None:
    """The second use finds the same statement."""
    assert sqlite.statement("SELECT :a") is sqlite.statement("SELECT :a")
