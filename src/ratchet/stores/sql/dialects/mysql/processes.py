"""
Finds and ends the connections of a process that is dead.

The MySQL server does not show a name of a client's choice to other users. But it tells which connection holds a named
lock. So each connection that writes holds one that is named after its process, for as long as it lives.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from typing import TYPE_CHECKING

import pymysql

from ratchet.model.process import process_name

if TYPE_CHECKING:
    from ratchet.stores.sql.dialects.mysql.connections import Connection, Connections

log = logging.getLogger("ratchet.stores.sql")

_NAMES = 256  # of a process, one for each of its connections
_TRIES = 4
_next = itertools.count()


def sign(connection: Connection, database: str) -> None:
    """Let others find the connection if this process dies; where the lock is refused, go on without."""
    names = _names(process_name(), database)
    try:
        with connection.cursor() as cursor:
            for _ in range(_TRIES):
                cursor.execute("SELECT GET_LOCK(%s, 0)", (names[next(_next) % _NAMES],))
                if (cursor.fetchone() or (0,))[0] == 1:
                    return
    except pymysql.Error as error:
        log.debug("a connection has no name: %s", error)


def end_transactions(connections: Connections, process: str) -> bool:
    """As `Dialect.end_transactions` has it."""
    names = _names(process, connections.address.database)
    found = False
    connection = connections.take("read")
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(['IS_USED_LOCK(%s)'] * _NAMES)}", names)
            holders = [int(holder) for holder in cursor.fetchone() or () if holder is not None]
            for holder in holders:  # not this one: it only reads, and has no name
                cursor.execute(f"KILL CONNECTION {holder}")
                found = True
        if found:
            log.warning("%d connections that %s has left open are ended", len(holders), process)
    except pymysql.Error as error:
        log.warning("the transactions that %s has left open cannot be ended: %s", process, error)
    finally:
        connections.give_back(connection)
    return found


def _names(process: str, database: str) -> list[str]:
    # a lock's name has at most 64 characters, and is known in the whole server
    owner = hashlib.sha256(f"{process}/{database}".encode()).hexdigest()[:24]
    return [f"ratchet.process.{owner}.{number}" for number in range(_NAMES)]
