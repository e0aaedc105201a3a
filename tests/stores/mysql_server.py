"""Driver connections to a MySQL database, beside those of the store under test."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql


def connect(url: str, **options: Any) -> Any:
    """A connection of PyMySQL to the database of *url*, as an application would have one."""
    parts = urlsplit(url)
    given = {
        "host": parts.hostname,
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "database": parts.path.strip("/"),
    }
    return pymysql.connect(**{**given, **options})


def ask(connection: Any, statement: str) -> Any:
    """The rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()
