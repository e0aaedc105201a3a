"""Native dumps of each kind of store: how they are read back, and how they were made."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
from bson import json_util
from pymongo import MongoClient

DUMPS = Path(__file__).parent / "dumps"
SUFFIXES = {"sqlite": "sql", "postgresql": "sql", "mysql": "sql", "mongodb": "json"}


def dump_of(kind: str) -> Path:
    """The file with the dump of a kind of store."""
    return DUMPS / f"{kind}.{SUFFIXES[kind]}"


def restore(kind: str, url: str) -> None:
    """Fill the empty database of *url* with the dump of its kind."""
    text = dump_of(kind).read_text()
    {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql, "mongodb": _mongodb}[kind](url, text)


def _sqlite(url: str, text: str) -> None:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.executescript(text)
    connection.close()


def _postgresql(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(text)  # type: ignore[call-overload]  # the dump, as it stands


def _mysql(url: str, text: str) -> None:
    with mysql(url) as connection, connection.cursor() as cursor:
        for statement in re.split(r";\n", text):
            if statement.strip():
                cursor.execute(statement)


def mysql(url: str) -> Any:
    """A connection to the database of *url*."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=parts.path.strip("/"),
        autocommit=True,
    )


def _mongodb(url: str, text: str) -> None:
    with MongoClient(url, uuidRepresentation="standard") as client:
        database = client.get_default_database()
        for name, found in json_util.loads(text).items():
            database.create_collection(name)
            indexes = [index for index in found["indexes"] if index["name"] != "_id_"]
            if indexes:
                database.command({"createIndexes": name, "indexes": indexes})
            if found["documents"]:
                database[name].insert_many(found["documents"])
