"""The ledger: each effect must be in it exactly once, on whatever driver the connection belongs to."""

from __future__ import annotations

import sqlite3
from typing import Any


def create(connection: Any) -> None:
    """A table without any constraint: it would show an effect that happened twice."""
    if is_mongodb(connection):
        # Made beforehand: transactions that each create it would conflict with one another.
        connection.client.get_default_database().create_collection("ledger")
        return
    run(connection, "CREATE TABLE ledger (number INTEGER NOT NULL)")
    if hasattr(connection, "begin"):  # PyMySQL
        connection.begin()  # there, a new table ends the transaction


def book(connection: Any, number: int) -> None:
    """One line in the ledger, on whatever driver the connection belongs to."""
    if is_mongodb(connection):
        connection.client.get_default_database()["ledger"].insert_one({"number": number}, session=connection)
        return
    mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"
    run(connection, f"INSERT INTO ledger (number) VALUES ({mark})", (number,))


def booked(connection: Any) -> list[int]:
    """Every number in the ledger."""
    if is_mongodb(connection):
        found = connection.client.get_default_database()["ledger"].find({}, session=connection)
        return [line["number"] for line in found]
    return [row[0] for row in run(connection, "SELECT number FROM ledger").fetchall()]


def is_mongodb(connection: Any) -> bool:
    """True for a pymongo session."""
    return type(connection).__module__.startswith("pymongo")


def run(connection: Any, statement: str, arguments: tuple[Any, ...] = ()) -> Any:
    """The cursor of a statement, on whatever driver the connection belongs to."""
    cursor = connection.cursor()
    cursor.execute(statement, arguments)
    return cursor
