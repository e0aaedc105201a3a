"""
Migration scripts where each statement that changes the schema commits by itself.

While a script runs, a table of its own records each statement before it begins, and again when it is done. A process
that is killed in the middle leaves that record behind, and the next run goes on there. Nobody knows whether the one
statement that was under way was done; so for that one only, it is no error that its table or index exists already.
"""

from __future__ import annotations

import hashlib
import logging
import re
from typing import TYPE_CHECKING

from ratchet.model.errors import StoreError
from ratchet.stores.sql.dialects.mysql.errors import number_of

if TYPE_CHECKING:
    from ratchet.stores.sql.dialects.mysql.session import MysqlSession

log = logging.getLogger("ratchet.stores.sql")

PROGRESS = "ratchet_schema_progress"

# A script is known by the number of those that were applied before it: it has no record of its own yet.
_CREATE = f"""
    CREATE TABLE IF NOT EXISTS {PROGRESS} (
        script      INT NOT NULL,
        position    INT NOT NULL,
        statement   CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        done        BOOLEAN NOT NULL,
        PRIMARY KEY (script, position)
    ) ENGINE = InnoDB
"""
_PIECE = re.compile(r"'(?:[^'\\]|''|\\.)*'|`[^`]*`|--[^\n]*\n?|/\*.*?\*/|;|[^'`;/-]+|.", re.DOTALL)

#: table, column, index, check exists (the last with a number of its own in each product); column or index, table does not
_ALREADY = {1050, 1051, 1060, 1061, 1091, 1826, 3822}

_CHECK = re.compile(r"ALTER TABLE (\w+) ADD CONSTRAINT (\w+) CHECK (\(.*\))", re.DOTALL)

_DATA = {"INSERT", "UPDATE", "DELETE", "REPLACE"}


def statements_of(script: str) -> list[str]:
    """The statements of a script, without comments to the end of a line and the semicolons that end them."""
    found: list[str] = []
    text = ""
    for piece in _PIECE.findall(script):
        if piece == ";":
            found.append(text.strip())
            text = ""
        elif not piece.startswith("--"):
            text += piece
    return [statement for statement in [*found, text.strip()] if statement]


def run_script(session: MysqlSession, script: str) -> None:
    """
    Run the statements of a script that have not been run before; called by one process at a time.

    What has been done is known by the statements themselves: a script that failed, and was repaired,
    goes on after the last statement that both have in common.
    """
    session.plain(_CREATE)
    ((number,),) = session.plain("SELECT count(*) FROM ratchet_schema_version").rows
    found = session.plain(
        f"SELECT statement, done FROM {PROGRESS} WHERE script = {number} ORDER BY position"
    ).rows
    for position, statement in enumerate(statements_of(script)):
        checksum = hashlib.sha256(statement.encode()).hexdigest()
        before = found[position] if position < len(found) else None
        if before == (checksum, 1):
            continue
        found = found[:position]  # what was recorded after it is not valid any more
        if statement.split()[0].upper() in _DATA:
            session.plain("START TRANSACTION")  # what changes rows only, and its note, commit together
            session.plain(statement)
        else:
            _note(session, number, position, checksum, done=False)
            _run(session, statement, again=before == (checksum, 0))
        _note(session, number, position, checksum, done=True)
        session.plain("COMMIT")


def forget_progress(session: MysqlSession) -> None:
    """Called when a script and its record are there."""
    session.plain(f"DROP TABLE IF EXISTS {PROGRESS}")


def _run(session: MysqlSession, statement: str, *, again: bool) -> None:
    if (check := _CHECK.fullmatch(statement)) and _is_broken(session, check[1], check[3]):
        log.warning("the check %s of %s is left out, because a row breaks it already", check[2], check[1])
        return
    try:
        session.plain(statement)
    except StoreError as error:
        if not again or error.__cause__ is None or number_of(error.__cause__) not in _ALREADY:
            raise


def _is_broken(session: MysqlSession, table: str, condition: str) -> bool:
    """True if some row would not pass: the check would refuse every later change of it, and this script."""
    return bool(session.plain(f"SELECT 1 FROM {table} WHERE NOT {condition} LIMIT 1").rows)


def _note(session: MysqlSession, number: int, position: int, checksum: str, *, done: bool) -> None:
    session.plain(
        f"REPLACE INTO {PROGRESS} (script, position, statement, done) "
        f"VALUES ({number}, {position}, '{checksum}', {int(done)})"
    )
