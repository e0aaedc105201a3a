"""An app whose jobs write a ledger inside ``ctx.transaction()``: each effect must be there exactly once."""

from __future__ import annotations

import time
from typing import Any

from ratchet import JobContext, Scheduler

scheduler = Scheduler(allow=["tests.cluster.bank"])


def pay(number: int, rest: float = 0.0) -> str:
    """Books one payment, together with its own success."""
    if rest:
        time.sleep(rest)
    with JobContext.current().transaction() as tx:
        book(tx.connection, number)
        tx.result = f"receipt-{number}"
    return "the transaction's result counts"


def create_ledger(connection: Any) -> None:
    """A table without any constraint: it would show an effect that happened twice."""
    connection.execute("CREATE TABLE ledger (number INTEGER NOT NULL)")


def book(connection: Any, number: int) -> None:
    """One line in the ledger, on whatever driver the connection belongs to."""
    mark = "?" if type(connection).__module__ == "sqlite3" else "%s"
    connection.execute(f"INSERT INTO ledger (number) VALUES ({mark})", (number,))


def booked(connection: Any) -> list[int]:
    """Every number in the ledger."""
    return [row[0] for row in connection.execute("SELECT number FROM ledger").fetchall()]
