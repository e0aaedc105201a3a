"""Values that go to PostgreSQL in its own binary formats arrive as they were."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ratchet.model.errors import InvalidJob, UnstorableData
from ratchet.model.identifiers import new_id
from ratchet.model.status import JobStatus
from ratchet.stores.sql.dialects.postgresql.values import WIDTHS
from tests.stores.sql_stores import SqlSteps, opened

VALUES: dict[str, list[Any]] = {
    "uuid": [UUID(int=0), UUID(int=2**128 - 1), new_id()],
    "time": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    "bool": [True, False],
    "int": [0, -1, 2**63 - 1, -(2**63)],
    "real": [0.0, -1.5, 1e300],
    "text": ["", "plain", 'quotes " and \\ and {,}', "NULL", "\N{SNOWMAN} \N{GRINNING FACE}"],
}


@pytest.fixture
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with opened("postgresql", request, tmp_path) as found:
        yield found


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("folded", [False, True], ids=["few rows", "many rows"])
class TestRowsets:
    def test_arrive_as_they_were(self, steps: SqlSteps, kind: str, folded: bool) -> None:
        """Every kind, with and without NULL, few rows and so many that constant columns are sent once."""
        values = (VALUES[kind] + [None]) * (20 if folded else 1)
        label = {"uuid": "value_uuid", "time": "value_at", "bool": "is_value"}.get(kind, "value")
        rows = [(number, value, values[0]) for number, value in enumerate(values)]
        found = steps.sql(
            f"SELECT r.number, r.value AS {label}, r.same AS {label} "
            f"FROM {{rows r (number int, value {kind}, same {kind})}} ORDER BY r.number",
            r=rows,
        )
        assert [row[1] for row in found] == values
        assert {row[2] for row in found} == {values[0]}


def test_a_member_of_an_enum_is_its_value(steps: SqlSteps) -> None:
    """Alone or in every row; the driver itself would send its name."""
    rows = [(number, JobStatus.PENDING) for number in range(40)]
    found = steps.sql("SELECT r.status FROM {rows r (number int, status text)}", r=rows)
    assert {status for (status,) in found} == {"PENDING"}


@pytest.mark.parametrize("rows", [1, 40])
def test_a_time_without_a_zone_is_refused(steps: SqlSteps, rows: int) -> None:
    """The server would read it in its own zone."""
    values = [(number, datetime(2026, 1, 1)) for number in range(rows)]
    with pytest.raises(InvalidJob, match="time zone"):
        steps.sql("SELECT r.moment FROM {rows r (number int, moment time)}", r=values)


@pytest.mark.parametrize("value", ["half a pair \ud83e", "a NUL \0"])
def test_text_that_no_database_holds_is_refused(steps: SqlSteps, value: str) -> None:
    """As unstorable data, so that a batch of completions can be split."""
    with pytest.raises(UnstorableData):
        steps.sql("SELECT count(*) AS jobs FROM {rows r (word text, number int)}", r=[(value, 1)])


def test_the_widths_of_copied_columns_are_the_catalog_s(steps: SqlSteps) -> None:
    """COPY in binary form takes an integer of exactly the column's width."""
    found = steps.sql(
        """
        SELECT DISTINCT c.column_name AS name, c.data_type AS type FROM information_schema.columns c
         WHERE c.table_name IN ('scheduler_job', 'scheduler_job_queue')
           AND c.data_type IN ('smallint', 'integer', 'bigint')
        """
    )
    narrow = {name: {"smallint": 2, "integer": 4}[kind] for name, kind in found if kind != "bigint"}
    # attempts and crashes have defaults and are never copied
    assert {name: width for name, width in narrow.items() if name not in ("attempts", "crashes")} == WIDTHS


class TestBulk:
    def test_every_field_survives(self, steps: SqlSteps) -> None:
        """A hundred jobs that differ in everything that a plain job can have, copied and read back."""
        specs = [
            steps.spec(
                payload=f'{{"args":[{number}],"kwargs":{{}}}}',
                max_retries=number % 3,
                timeout=None if number % 2 else timedelta(seconds=number),
                jitter=number / 100,
                on_success="module:done" if number % 5 == 0 else None,
            )
            for number in range(100)
        ]
        steps.store.insert(specs, now=steps.now)
        for spec in specs:
            record = steps.store.get(spec.job_id)
            assert record is not None
            assert (record.payload, record.max_retries, record.timeout, record.jitter) == (
                spec.payload,
                spec.max_retries,
                spec.timeout,
                spec.jitter,
            )

    def test_a_second_try_stores_nothing_twice(self, steps: SqlSteps) -> None:
        """The answer of the first was lost: the same ids again, and some that are new, end up there once."""
        specs = [steps.spec() for _ in range(80)]
        more = [steps.spec() for _ in range(80)]
        steps.store.insert(specs, now=steps.now)
        answers = steps.store.insert([*specs, *more], now=steps.now)
        assert all(answer.created for answer in answers)
        assert steps.sql("SELECT count(*) AS jobs FROM scheduler_job") == [(160,)]
        assert steps.sql("SELECT count(*) AS jobs FROM scheduler_job_queue") == [(160,)]
