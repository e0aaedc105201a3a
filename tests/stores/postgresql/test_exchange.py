"""Questions past psycopg's cursor: values of every type go and come back, and what cannot be sent is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest

from ratchet.model.claim import ClaimRequest
from ratchet.model.errors import UnstorableData
from ratchet.model.identifiers import new_id
from ratchet.stores.sql.dialects.postgresql.autocommit import Exchange
from ratchet.stores.sql.dialects.postgresql.connections import Connections
from ratchet.stores.sql.dialects.postgresql.values import binary_array
from tests.stores.sql_stores import SqlSteps, opened


class Fruit(StrEnum):
    PEAR = "pear"


class Frozen(datetime):
    """As libraries that stop the clock make them."""


@pytest.fixture
def exchange(postgresql_url: str) -> Iterator[Exchange]:
    connections = Connections(postgresql_url, size=1, connect_timeout=10, statement_timeout=30)
    connection = connections.take()
    connection.execute("SET TimeZone = 'UTC'")
    yield Exchange(connection, 30)
    connections.give_back(connection)
    connections.close()


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        0,
        -(2**62),
        "",
        "ä𝄞",
        Fruit.PEAR,
        datetime(2026, 11, 16, 9, 30, 0, 123456, tzinfo=UTC),
        Frozen(1970, 1, 1, tzinfo=UTC),
        timedelta(minutes=15),
        timedelta(days=400, microseconds=1),
        timedelta(days=-1, hours=3),
        UUID(int=1),
    ],
    ids=repr,
)
def test_a_value_comes_back(exchange: Exchange, value: object) -> None:
    """Twice: prepared, and from what was prepared."""
    for _ in range(2):
        assert exchange.rows("SELECT $1", [value]) == [(value,)]


def test_arrays_and_null(exchange: Exchange) -> None:
    """NULL takes the type that the statement gives it; the same text with another type is prepared for itself."""
    ids = [new_id(), new_id()]
    assert exchange.rows("SELECT unnest($1)", [binary_array(ids, "uuid")]) == [(one,) for one in ids]
    assert exchange.rows("SELECT unnest($1)", [binary_array(["a", None], "text")]) == [("a",), (None,)]
    for value in (None, "b", None):
        assert exchange.rows("SELECT CAST($1 AS text)", [value]) == [(value,)]


def test_an_error_of_the_server(exchange: Exchange) -> None:
    """It is psycopg's, and the connection is as good as before."""
    with pytest.raises(psycopg.errors.DivisionByZero):
        exchange.rows("SELECT 1 / $1", [0])
    assert exchange.rows("SELECT 1 / $1", [1]) == [(1,)]


def test_what_has_no_type_there(exchange: Exchange) -> None:
    """Refused by name before anything is sent."""
    with pytest.raises(UnstorableData, match="a complex cannot be sent"):
        exchange.rows("SELECT $1", [1j])
    assert exchange.rows("SELECT $1", [1]) == [(1,)]


def test_a_claim_at_a_time_of_another_type(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Where a library has stopped the clock, jobs are claimed all the same."""
    with opened("postgresql", request, tmp_path) as steps:
        assert isinstance(steps, SqlSteps)
        spec = steps.spec()
        steps.store.insert([spec], now=steps.now)
        now = Frozen.fromisoformat((steps.now + timedelta(seconds=1)).isoformat())
        asked = ClaimRequest(node_id="n1", claim_id=new_id(), limit=5, boost_interval=timedelta(minutes=15))
        assert [job.claim.job_id for job in steps.store.claim_next_batch(asked, now=now)] == [spec.job_id]


# A process of its own, so that it goes on where this one stands still; but not without end.
HALF_AN_ANSWER = """
import os, socket, sys, threading, time
threading.Timer(20, os._exit, [0]).start()
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
client, _ = listener.accept()
server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
asked = []
def ask():
    while data := client.recv(1 << 16):
        asked.append(b"half" in data)
        server.sendall(data)
threading.Thread(target=ask, daemon=True).start()
while data := server.recv(1 << 16):
    if any(asked) and data.endswith(b"Z\\0\\0\\0\\5I"):
        data = data[:-6]
    client.sendall(data)
"""


def test_an_answer_that_has_no_end(postgresql_url: str) -> None:
    """The rows have come, but not that they are committed: as for a server that says nothing, the wait ends."""
    there = urlsplit(postgresql_url)
    with subprocess.Popen(
        [sys.executable, "-c", HALF_AN_ANSWER, str(there.port)], stdout=subprocess.PIPE, text=True
    ) as between:
        assert between.stdout is not None
        user = f"{there.username}@" if there.username else ""
        through = there._replace(
            netloc=f"{user}127.0.0.1:{between.stdout.readline().strip()}", query="sslmode=disable"
        )
        connections = Connections(through.geturl(), size=1, connect_timeout=10, statement_timeout=30)
        connection = connections.take()
        with pytest.raises(psycopg.OperationalError, match="did not answer in time"):
            Exchange(connection, 1).rows("SELECT 'half' || $1", ["an answer"])
        connection.close()
        connections.give_back(connection)
        connections.close()
        between.kill()
