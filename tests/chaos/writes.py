"""How much a cluster writes, by the database's own count, and how much of it is beats."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pymongo
import pymysql

from tests.chaos.stage import Stage

NODES = "scheduler_node"


@dataclass(frozen=True)
class Writes:
    """What was written since the server started."""

    beats: int
    others: int

    def __sub__(self, earlier: Writes) -> Writes:
        return Writes(self.beats - earlier.beats, self.others - earlier.others)

    def __str__(self) -> str:
        return f"{self.beats} beats, {self.others} other writes"


def count(stage: Stage) -> Writes:
    """What has been written so far."""
    return _COUNTERS[stage.kind](stage)


def _beats(stage: Stage) -> int:
    return sum(node.beat for node in stage.scheduler.nodes.list())


def _of_postgresql(stage: Stage) -> Writes:
    """Row changes by table; the server's processes report theirs with a delay, which the caller's rests cover."""
    with stage.store.begin() as connection:
        rows = connection.execute(
            "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables"
        ).fetchall()
    written = dict(rows)
    return Writes(written.pop(NODES), sum(written.values()))


def _of_mysql(stage: Stage) -> Writes:
    """
    Writing statements of the whole server, less the beats that the nodes' own counters tell.

    Beats that fall between the two questions are told twice or not at all: the server is asked
    until the counters have not moved meanwhile.
    """
    return _steadily(stage, _mysql_statements)


def _mysql_statements(stage: Stage) -> int:
    assert stage.server is not None
    connection: Any = pymysql.connect(host="127.0.0.1", port=stage.server.port, user="root")
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_insert', 'Com_update', 'Com_delete', 'Com_replace')"
        )
        statements = {name: int(value) for name, value in cursor.fetchall()}
    return sum(statements.values())


def _of_mongodb(stage: Stage) -> Writes:
    """Documents that the whole server has changed, less the beats."""
    return _steadily(stage, _mongodb_documents)


def _mongodb_documents(stage: Stage) -> int:
    assert stage.server is not None
    client: pymongo.MongoClient[dict[str, Any]]
    with pymongo.MongoClient(stage.server.url) as client:
        counters = client.admin.command("serverStatus")["metrics"]["document"]
    return sum(int(counters[verb]) for verb in ("inserted", "updated", "deleted"))


def _steadily(stage: Stage, total: Callable[[Stage], int]) -> Writes:
    for _ in range(200):
        before = _beats(stage)
        written = total(stage)
        if _beats(stage) == before:
            return Writes(before, written - before)
    raise AssertionError("the beats never rested long enough to be counted")


def _of_sqlite(stage: Stage) -> Writes:
    """Nobody counts here: the contents of all other tables are compared instead, as a number that changes with them."""
    connection = sqlite3.connect(stage.url.removeprefix("sqlite:///"))
    contents = [line for line in connection.iterdump() if f'"{NODES}"' not in line]
    connection.close()
    return Writes(_beats(stage), hash(tuple(contents)))


_COUNTERS: dict[str, Callable[[Stage], Writes]] = {
    "postgresql": _of_postgresql,
    "mysql": _of_mysql,
    "mongodb": _of_mongodb,
    "sqlite": _of_sqlite,
}
