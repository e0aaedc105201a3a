"""SQL stores to test on: SQLite in memory and in a file, PostgreSQL and MySQL, each migrated and empty."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ratchet.model.claim import JobClaim
from ratchet.model.options import Options
from ratchet.stores.sql.store import SqlStore
from ratchet.stores.sql.urls import dialect_of
from ratchet.tck.steps import Steps

T = TypeVar("T")

MEMORY = "sqlite:///:memory:"
KINDS = ("memory", "file", "postgresql", "mysql")

#: As a constraint that a user has added, or a database whose default is SERIALIZABLE: the statement runs, its commit fails.
REFUSED_COMMITS = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$;
    CREATE CONSTRAINT TRIGGER refusal AFTER {event} ON {table} DEFERRABLE INITIALLY DEFERRED
       FOR EACH ROW EXECUTE FUNCTION refuse()
"""


class SqlSteps(Steps):
    """The words of the conformance kit on one SQL store, and more handles on the same data."""

    store: SqlStore

    def __init__(self, url: str) -> None:
        self._url = url
        self._handles: list[SqlStore] = []
        self.store = self.another()
        self.store.migrate()

    def another(self) -> SqlStore:
        """Another handle, as another node would have; in memory there is only one."""
        if self._url == MEMORY and self._handles:
            return self._handles[0]
        options = Options()
        self._handles.append(SqlStore(dialect_of(self._url, options), options))
        return self._handles[-1]

    def sql(self, text: str, **params: object) -> list[tuple[Any, ...]]:
        """The rows of a query of our own."""
        return self.store.database.read(lambda session: session.rows(text, params))

    def write(self, text: str, **params: object) -> int:
        """Change rows behind the store's back."""
        return self.store.database.run(lambda session: session.execute(text, params))

    def close(self) -> None:
        for handle in self._handles:
            handle.close()


@contextmanager
def opened(kind: str, request: Any, tmp_path: Path) -> Iterator[SqlSteps]:
    """A store of this kind; the server starts when the first test asks for it."""
    match kind:
        case "memory":
            url = MEMORY
        case "file":
            url = f"sqlite:///{tmp_path / 'jobs.db'}"
        case _:
            url = request.getfixturevalue(f"{kind}_url")
    steps = SqlSteps(url)
    try:
        yield steps
    finally:
        steps.close()


def claim_all(steps: SqlSteps, node: str, count: int) -> list[JobClaim]:
    """*count* jobs RUNNING on a new node."""
    steps.register(node)
    steps.submit_many(count)
    claims = steps.claim(node_id=node)
    assert len(claims) == count
    return claims


def at_once(*actions: Callable[[], T]) -> list[T]:
    """The answers of these calls, made by as many threads at the same moment; the first error is raised."""
    barrier = threading.Barrier(len(actions))
    answers: list[Any] = [None] * len(actions)
    errors: list[BaseException] = []

    def call(index: int, action: Callable[[], T]) -> None:
        try:
            barrier.wait(timeout=10)
            answers[index] = action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=item) for item in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)
    return answers


def times(count: int, action: Callable[[], T]) -> Sequence[Callable[[], T]]:
    """The same call several times, for `at_once`."""
    return [action] * count
