"""
Migration scripts where each statement that changes the schema commits by itself.

How far a script has come is kept in a table of its own for as long as it runs: the number of the statement
that is under way, before it begins, and that it is done, afterwards. A process that is killed in the middle
leaves that behind, and the next run goes on there. Of the one statement that was under way nobody knows
whether it was done, so there, and only there, it is no error that its table or index exists already.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from ratchet.model.errors import StoreError
from ratchet.stores.sql.dialects.mysql_errors import number_of

if TYPE_CHECKING:
    from ratchet.stores.sql.dialects.mysql_session import MysqlSession

PROGRESS = "ratchet_schema_progress"

_CREATE = f"""
    CREATE TABLE IF NOT EXISTS {PROGRESS} (
        checksum    CHAR(64) CHARACTER SET ascii PRIMARY KEY,
        done        INT NOT NULL,
        under_way   BOOLEAN NOT NULL
    ) ENGINE = InnoDB
"""
_PIECE = re.compile(r"'(?:[^'\\]|''|\\.)*'|`[^`]*`|--[^\n]*\n?|/\*.*?\*/|;|[^'`;/-]+|.", re.DOTALL)

#: table, column, index exists; column or index, table does not
_ALREADY = {1050, 1051, 1060, 1061, 1091}


def statements_of(script: str) -> list[str]:
    """The statements of a script, without the semicolons that end them."""
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
    """Run the statements of a script that have not been run before; called by one process at a time."""
    statements = statements_of(script)
    checksum = hashlib.sha256(script.encode()).hexdigest()
    session.plain(_CREATE)
    rows = session.plain(f"SELECT done, under_way FROM {PROGRESS} WHERE checksum = '{checksum}'").rows
    done, interrupted = rows[0] if rows else (0, 0)
    for number in range(done, len(statements)):
        _note(session, checksum, number, under_way=True)
        _run(session, statements[number], again=bool(interrupted) and number == done)
        _note(session, checksum, number + 1, under_way=False)
    session.plain(f"DROP TABLE IF EXISTS {PROGRESS}")


def _run(session: MysqlSession, statement: str, *, again: bool) -> None:
    try:
        session.plain(statement)
    except StoreError as error:
        if not again or error.__cause__ is None or number_of(error.__cause__) not in _ALREADY:
            raise


def _note(session: MysqlSession, checksum: str, done: int, *, under_way: bool) -> None:
    session.plain(
        f"REPLACE INTO {PROGRESS} (checksum, done, under_way) VALUES ('{checksum}', {done}, {int(under_way)})"
    )
