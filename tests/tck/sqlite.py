"""The harnesses of the SQLite store, in a file and in memory."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ratchet.model.options import Options
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.tck import Harness
from ratchet.tck.harness import CommitMoment
from tests.tck.memory import lost_answer

#: Contracts are about what is committed, not about power cuts.
OPTIONS = Options(sqlite_synchronous="NORMAL")


class SqliteFileHarness(Harness):
    """Every contract gets a copy of a file that was migrated once; another node opens that copy again."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ratchet-tck-"))
        self.template = self.directory / "template.db"
        self.file = self.template
        self.handles: list[JobStore] = []
        self.number = 0
        store = self.reopen()
        store.migrate()
        self.capabilities = store.capabilities
        self.close()

    def open(self) -> JobStore:
        self.number += 1
        self.file = self.directory / f"{self.number}.db"
        shutil.copyfile(self.template, self.file)
        return self.reopen()

    def reopen(self) -> JobStore:
        store = open_store(f"sqlite:///{self.file}", OPTIONS)
        self.handles.append(store)
        return store

    def close(self) -> None:
        while self.handles:
            self.handles.pop().close()
        if self.file != self.template:
            for leftover in self.directory.glob(f"{self.file.name}*"):
                leftover.unlink(missing_ok=True)

    def shutdown(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def commit_fault(self, store: JobStore, moment: CommitMoment) -> AbstractContextManager[None]:
        database: Any = store
        return lost_answer(database.database.dialect, "_commit", moment)


class SqliteMemoryHarness(Harness):
    """Every contract gets a database of its own; it lives in one object, which is every node."""

    random_lives = 40

    def __init__(self) -> None:
        self.capabilities = open_store("sqlite:///:memory:", OPTIONS).capabilities

    def open(self) -> JobStore:
        self.only = open_store("sqlite:///:memory:", OPTIONS)
        self.only.migrate()
        return self.only

    def reopen(self) -> JobStore:
        return self.only

    def close(self) -> None:
        self.only.close()

    def commit_fault(self, store: JobStore, moment: CommitMoment) -> AbstractContextManager[None]:
        database: Any = store
        return lost_answer(database.database.dialect, "_commit", moment)
