"""The servers by name; a driver is imported only when its server is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.services.server import Server

CLASSES = {
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB",
    "mongodb": "MongoDB",
    "redis": "Redis",
    "pgbouncer": "PgBouncer",
}


def server_class(kind: str) -> type[Any]:
    """The class of one kind of server."""
    found: type[Server] = getattr(import_module(f"tests.services.{kind}"), CLASSES[kind])
    return found
