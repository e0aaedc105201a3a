"""
Roles for the database that may do what a program needs, and no more: `grants_for` gives the statements that make them.

What each role may do with each table is said here once, in the words of SQL. A product that cannot say it as narrowly says
the next wider thing it has: MongoDB knows no columns. A test compares `TABLES` with what the migrations make, so that no table is forgotten.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ratchet.model.errors import ConfigurationError
from ratchet.model.store_url import StoreUrl


class Role(StrEnum):
    """What a program does with the database."""

    MIGRATOR = "migrator"  # ratchet db upgrade
    WORKER = "worker"  # runs jobs, keeps house; also what people do by hand
    SUBMITTER = "submitter"  # adds jobs, and waits for their results
    READER = "reader"  # looks, and changes nothing


#: A privilege, and the columns it is limited to; none: all of them.
Rights = Mapping[str, tuple[str, ...]]


def _rights(*words: str, update: Sequence[str] = ()) -> Rights:
    return {**dict.fromkeys(words, ()), **({"UPDATE": tuple(update)} if update else {})}


_READ: Final = _rights("SELECT")
_ADD: Final = _rights("SELECT", "INSERT")
_CHANGE: Final = _rights("SELECT", "INSERT", "UPDATE", "DELETE")

VERSION_TABLE: Final = "ratchet_schema_version"
AUDIT_TABLE: Final = "scheduler_audit"
#: What `ratchet db move` keeps in mind; the migrator moves.
MOVE_TABLE: Final = "scheduler_move"
#: The table in which MySQL remembers how far a script has come, while it runs.
PROGRESS_TABLE: Final = "ratchet_schema_progress"
#: By which a migration keeps others out where several MySQL servers take writes.
MIGRATION_TABLE: Final = "ratchet_schema_lock"
#: Where `ratchet db rollback` puts the scripts that older code does not know.
HIDDEN_TABLE: Final = "ratchet_schema_hidden"

#: Every table, and what a submitter may do with it; None: nothing.
TABLES: Final[Mapping[str, Rights | None]] = {
    VERSION_TABLE: _READ,
    "scheduler_job": _ADD,
    "scheduler_job_queue": _ADD,
    "scheduler_job_archive": _READ,
    # when a stream was last used, and that a job came into it whose time had passed
    "scheduler_stream": _rights("SELECT", "INSERT", update=("created_at", "epoch")),
    "scheduler_queue": _READ,
    "scheduler_business_key_reservation": _ADD,
    "scheduler_idempotency_key": _ADD,
    "scheduler_job_tag": _ADD,
    "scheduler_job_execution": None,
    "scheduler_job_log": None,
    # a batch that is stored whole is looked at under a lock, which takes the right to change a column
    "scheduler_batch": _rights("SELECT", "INSERT", update=("finished_at",)),
    "scheduler_batch_metrics": _READ,
    "scheduler_dependency": _ADD,
    "scheduler_workflow_condition": _ADD,
    "scheduler_recurring_job": None,
    "scheduler_recurring_fire": None,
    "scheduler_signal": None,
    "scheduler_lock": None,
    "scheduler_node": None,
    "scheduler_resource_limit": None,
    "scheduler_resource_permit": _READ,  # whether the code of a key's holder is still running
    "scheduler_circuit_breaker": None,
    "scheduler_dlq_alert": None,
    "scheduler_flow": None,
    MOVE_TABLE: _READ,
    AUDIT_TABLE: _rights("INSERT"),  # refusals
}

#: What MongoDB has beside or instead of these.
COLLECTIONS: Final[Mapping[str, Rights | None]] = {
    **{
        name: rights
        for name, rights in TABLES.items()
        if name not in ("scheduler_job_queue", "scheduler_job_tag", "scheduler_workflow_condition")
    },
    "scheduler_lingering_run": _READ,
    "scheduler_signal_gate": None,
    "scheduler_wakeup": _rights("INSERT"),
}

#: An entry is written once. Its count grows where a verb needs several transactions, and time deletes it.
_AUDIT_OF_WORKER: Final = _rights("SELECT", "INSERT", "DELETE", update=("affected", "reason", "outcome"))


def rights_of(role: Role, tables: Mapping[str, Rights | None] = TABLES) -> dict[str, Rights]:
    """What *role* may do with the rows of each table; a table that it may not even read is left out."""
    match role:
        case Role.READER:
            return dict.fromkeys(tables, _READ)
        case Role.SUBMITTER:
            return {name: rights for name, rights in tables.items() if rights is not None}
        case Role.WORKER:
            return {
                **dict.fromkeys(tables, _CHANGE),
                VERSION_TABLE: _READ,
                MOVE_TABLE: _READ,
                AUDIT_TABLE: _AUDIT_OF_WORKER,
            }
        case Role.MIGRATOR:
            return dict.fromkeys(tables, _CHANGE)


@dataclass(frozen=True)
class RoleGrants:
    """One role, and the statements that make it or bring it up to date."""

    role: Role
    name: str
    statements: list[str]
    #: MongoDB: the privileges as the server takes them.
    privileges: list[dict[str, object]] | None = None


_PREFIX: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")


def grants_for(
    url: str, roles: Sequence[Role] = tuple(Role), *, prefix: str = "ratchet", schema: str | None = None
) -> list[RoleGrants]:
    """
    The statements for these roles in the database of *url*; nothing is connected.

    They can be run again, after an upgrade for example. `ConfigurationError` for a database without roles.
    """
    if not _PREFIX.fullmatch(prefix):
        raise ConfigurationError(
            f"names of roles begin with up to 40 small letters, digits and underscores, not with {prefix!r:.60}"
        )
    parts = StoreUrl.of(url)
    product = parts.scheme.partition("+")[0]
    if product == "sqlite":
        raise ConfigurationError(
            "SQLite has no users and no roles: whoever may write the file may do everything. Let the file, and the folder it is in, "
            "belong to the user that the workers run as (chmod 600 FILE, chmod 700 FOLDER)"
        )
    if product not in _PRODUCTS:
        raise ConfigurationError(
            "grants are made for PostgreSQL, MySQL, MariaDB and MongoDB; say which database with a URL of one of these"
        )
    return [
        _PRODUCTS[product](role, f"{prefix}_{role}", parts.path, schema)
        for role in dict.fromkeys(Role(role) for role in roles)
    ]


# --- PostgreSQL -------------------------------------------------------------------------------------


def _postgresql(role: Role, name: str, database: str, schema: str | None) -> RoleGrants:
    place = _quoted(schema or "public", '"')
    statements = [
        f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN CREATE ROLE {name} NOLOGIN; END IF; END $$;"
    ]
    if database:
        statements.append(f"GRANT CONNECT ON DATABASE {_quoted(database, chr(34))} TO {name};")
    if role is Role.MIGRATOR:
        statements += [
            f"GRANT USAGE, CREATE ON SCHEMA {place} TO {name};",
            _taken_over(name, schema or "public"),
        ]
        return RoleGrants(role, name, statements)
    every = ", ".join(f"{place}.{table}" for table in TABLES)
    statements += [f"GRANT USAGE ON SCHEMA {place} TO {name};", f"REVOKE ALL ON {every} FROM {name};"]
    together: dict[str, list[str]] = {}
    for table, rights in rights_of(role).items():
        together.setdefault(_privileges(rights), []).append(f"{place}.{table}")
    statements += [
        f"GRANT {privileges} ON {', '.join(tables)} TO {name};" for privileges, tables in together.items()
    ]
    # so that nobody is without a right between the two
    return RoleGrants(role, name, ["BEGIN;", *statements, "COMMIT;"])


def _taken_over(name: str, schema: str) -> str:
    """What is there already is given to the role: only the owner of a table may change its columns."""
    tables = ", ".join(f"'{table}'" for table in TABLES)
    literal = "'" + schema.replace("'", "''") + "'"
    return (
        f"DO $$ DECLARE one text; BEGIN FOR one IN\n"
        f"    SELECT format('ALTER TABLE %s OWNER TO {name}', c.oid::regclass) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace\n"
        f"     WHERE n.nspname = {literal} AND c.relkind = 'r' AND c.relname IN ({tables})\n"
        f"     UNION ALL\n"
        f"    SELECT format('ALTER FUNCTION %s OWNER TO {name}', p.oid::regprocedure) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace\n"
        f"     WHERE n.nspname = {literal} AND p.proname = 'ratchet_refuse'\n"
        f"LOOP EXECUTE one; END LOOP; END $$;"
    )


# --- MySQL and MariaDB ------------------------------------------------------------------------------

_SCHEMA_RIGHTS: Final = "CREATE, ALTER, INDEX"


def _mysql(role: Role, name: str, database: str, schema: str | None) -> RoleGrants:
    if not (database := schema or database):
        raise ConfigurationError("the URL names no database, and the grants are for the tables of one")
    place = _quoted(database, "`")
    statements = [f"CREATE ROLE IF NOT EXISTS {name};"]
    for table, rights in rights_of(role).items():
        privileges = _privileges(rights)
        if role is Role.MIGRATOR:  # with CREATE a right may be granted for a table that is not there yet
            privileges = f"{privileges}, {_SCHEMA_RIGHTS}"
        statements.append(f"GRANT {privileges} ON {place}.{table} TO {name};")
    if role is Role.MIGRATOR:
        statements += [
            f"GRANT SELECT, INSERT, UPDATE, DELETE, {_SCHEMA_RIGHTS}, DROP ON {place}.{table} TO {name};"
            for table in (PROGRESS_TABLE, MIGRATION_TABLE, HIDDEN_TABLE)
        ]
    return RoleGrants(role, name, statements)


# --- MongoDB ----------------------------------------------------------------------------------------

_ACTIONS: Final = {"SELECT": "find", "INSERT": "insert", "UPDATE": "update", "DELETE": "remove"}
_WAKEUPS: Final = "scheduler_wakeup"


def _mongodb(role: Role, name: str, database: str, schema: str | None) -> RoleGrants:
    del schema
    database = database or "ratchet"
    privileges: list[dict[str, object]] = []
    if role is Role.MIGRATOR:  # the driver looks whether a collection is there before it makes it
        privileges.append({"resource": {"db": database, "collection": ""}, "actions": ["listCollections"]})
    for collection, rights in rights_of(role, COLLECTIONS).items():
        actions = [_ACTIONS[word] for word in rights]
        if role is Role.MIGRATOR:
            actions += ["createCollection", "createIndex", "listIndexes", "collStats"]
        elif role is not Role.SUBMITTER:
            actions += ["collStats"]  # sizes
        if role is Role.WORKER and collection == _WAKEUPS:
            actions += ["changeStream"]
        privileges.append({"resource": {"db": database, "collection": collection}, "actions": actions})
    at = f"db.getSiblingDB({json.dumps(database)})"
    text = ",\n  ".join(json.dumps(one) for one in privileges)
    statements = [
        f'if (!{at}.getRole("{name}")) {at}.createRole({{role: "{name}", privileges: [], roles: []}});',
        f'{at}.updateRole("{name}", {{privileges: [\n  {text}\n]}});',
    ]
    return RoleGrants(role, name, statements, privileges)


_PRODUCTS: Final[Mapping[str, Callable[[Role, str, str, str | None], RoleGrants]]] = {
    "postgresql": _postgresql,
    "postgres": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "mongodb": _mongodb,
}


# --- words ------------------------------------------------------------------------------------------


def _privileges(rights: Rights) -> str:
    return ", ".join(_words(rights))


def _words(rights: Rights) -> Iterator[str]:
    for word, columns in rights.items():
        yield f"{word} ({', '.join(columns)})" if columns else word


def _quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, quote * 2) + quote
