"""
Transactions that a dead process has left open.

MongoDB does not end a transaction with its connection. The changes of a process that was killed block every
other change of the same documents for a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from pymongo.errors import PyMongoError

from ratchet.stores.mongo.connections import CODEC, Client
from ratchet.stores.mongo.documents.values import Document
from ratchet.stores.mongo.errors import is_conflict, translated
from ratchet.stores.mongo.schema import Names

if TYPE_CHECKING:
    from ratchet.stores.mongo.database import Database

log = logging.getLogger("ratchet.stores.mongo")


def end_transactions(database: Database, process: str) -> bool:
    """
    Abort the transactions of a process that is dead (`model.process`); True if there were some.

    Nothing that they have changed could have been committed any more: the jobs belong to others. With an
    ``appName`` in the URL they cannot be told from others, and are left to the server.
    """
    name = database.caller_client_name(process)
    if name is None:
        return False
    left = {"appName": name, "transaction": {"$exists": True}}
    try:
        ended = end_idle_transactions(database.client(), left)
    except PyMongoError as error:
        log.warning("the transactions that %s has left open are left to the server: %s", process, error)
        return False
    if ended:
        log.warning("%d transactions that %s has left open are aborted", ended, process)
    return ended > 0


def end_idle_transactions(client: Client, which: Document) -> int:
    """Abort the transactions of the idle sessions that match; how many there were."""
    with client.admin.aggregate(
        [{"$currentOp": {"idleSessions": True}}, {"$match": {"type": "idleSession", **which}}]
    ) as found:
        sessions = [{"id": one["lsid"]["id"]} for one in found]
    if sessions:
        client.admin.command("killSessions", sessions, codec_options=CODEC)
    return len(sessions)


def held_up(database: Database, job_ids: Iterable[UUID]) -> frozenset[UUID]:
    """Those of these jobs that an open transaction has changed: any other write to them is refused at once."""
    return frozenset(job_id for job_id in job_ids if _is_held(database, job_id))


def _is_held(database: Database, job_id: UUID) -> bool:
    try:
        with database.trial() as session:
            database.collections()[Names.JOBS].update_one(
                {"_id": job_id}, {"$inc": {"rev": 1}}, session=session
            )
    except PyMongoError as error:
        if is_conflict(error):
            return True
        raise translated(error, database.where) from error
    return False
