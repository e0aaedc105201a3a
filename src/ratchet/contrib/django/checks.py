"""System checks: what is missing or would go wrong, said by ``manage.py check`` before it does."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names for its messages
from django.db import connections

from ratchet.contrib.django.database_url import is_in_memory, url_of
from ratchet.contrib.django.settings import Settings
from ratchet.model.errors import ConfigurationError


def check_settings(**_: Any) -> list[CheckMessage]:
    """Nothing is connected for it: ``manage.py ratchet health`` looks at the database."""
    try:
        alias = Settings.read().database
        entry = connections.settings[alias]
        if not is_in_memory(entry):
            url_of(alias, entry)
    except ConfigurationError as error:
        return [Error(str(error), id="ratchet.E001")]
    match connections[alias].vendor:
        case "postgresql":
            return _postgresql(alias)
        case "mysql":
            return _mysql(alias)
        case "sqlite":
            return _sqlite(alias)
    return []


def _postgresql(alias: str) -> list[CheckMessage]:
    if find_spec("psycopg") is not None:
        return []
    return [
        Error(
            f"Jobs in DATABASES[{alias!r}] need psycopg 3; psycopg2 cannot be joined.",
            hint="pip install 'ratchet-jobs[postgresql]'; Django uses psycopg 3 as soon as it is installed.",
            id="ratchet.E002",
        )
    ]


def _mysql(alias: str) -> list[CheckMessage]:
    if find_spec("pymysql") is None:
        return [
            Error(
                f"Jobs in DATABASES[{alias!r}] need PyMySQL, also where Django itself uses mysqlclient.",
                hint="pip install 'ratchet-jobs[mysql]'",
                id="ratchet.E003",
            )
        ]
    return []


def _sqlite(alias: str) -> list[CheckMessage]:
    entry = connections.settings[alias]
    mode = str((entry.get("OPTIONS") or {}).get("transaction_mode") or "").upper()
    if mode in ("IMMEDIATE", "EXCLUSIVE") or is_in_memory(entry):
        return []
    return [
        Warning(
            f"atomic() on DATABASES[{alias!r}] begins without the write lock: if it reads before it submits a job, and a worker "
            f"writes in between, SQLite refuses the submission at once ('database is locked').",
            hint=f"DATABASES[{alias!r}]['OPTIONS'] = {{'transaction_mode': 'IMMEDIATE'}}",
            id="ratchet.W001",
        )
    ]
