"""Everything that a store holds, as one text: every table, collection and file."""

from __future__ import annotations

import gc
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from msgspec import Struct

from ratchet.stores.memory import MemoryStore


def dump(store: Any) -> str:
    """All that the store holds, also what is left in a file of SQLite after it was changed."""
    store = getattr(store, "inner", store)
    if isinstance(store, MemoryStore):
        return _of_memory(store)
    if store.name == "mongodb":
        collections = store.database.collections()
        database = collections["scheduler_job"].database
        return "\n".join(
            f"{name}: {document!r}"
            for name in sorted(database.list_collection_names())
            for document in database[name].find({})
        )
    return _of_sql(store)


def _of_memory(store: MemoryStore) -> str:
    """Every text that can be reached from the store's state."""
    texts: list[str] = []
    seen: set[int] = set()
    waiting: list[object] = [store._state]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            texts.append(value)
        if id(value) in seen or isinstance(value, (str, type, FunctionType, ModuleType)):
            continue
        seen.add(id(value))
        waiting += gc.get_referents(value)
        if isinstance(value, Struct):  # some of ours are hidden from the garbage collector
            waiting += [getattr(value, name) for name in value.__struct_fields__]
    return "\n".join(texts)


def _of_sql(store: Any) -> str:
    dialect = store.database.dialect
    lines: list[str] = []
    with dialect.reading() as session:
        if dialect.name == "sqlite":
            tables = [row[0] for row in session.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        else:
            where = "DATABASE()" if dialect.name == "mysql" else "'public'"
            tables = [
                row[0]
                for row in session.rows(
                    f"SELECT table_name FROM information_schema.tables WHERE table_schema = {where}"
                )
            ]
        for table in sorted(tables):
            lines += [f"{table}: {tuple(row)!r}" for row in session.rows(f"SELECT * FROM {table}")]
    if dialect.name == "sqlite":
        file = Path(_file_of(store))
        for each in sorted(file.parent.glob(f"{file.name}*")):
            lines.append(each.read_bytes().decode("latin-1"))
    assert len(tables) > 20, tables
    return "\n".join(lines)


def _file_of(store: Any) -> str:
    with store.database.dialect.reading() as session:
        (row,) = [
            row for row in session.rows("SELECT name, file FROM pragma_database_list") if row[0] == "main"
        ]
    return str(row[1])
