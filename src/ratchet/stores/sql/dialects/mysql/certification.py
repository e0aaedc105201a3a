"""
Galera: several servers take writes, and compare what two transactions have written when they commit.

A lock of a row holds on one server only; what is compared is the primary keys of changed rows, and of two transactions
that changed the same row the first to commit wins. So a transaction that decides by a row which it has locked, and does
not change it, has to change it all the same (`holding`). And a read may be behind what another server has acknowledged,
unless it waits (`prepare`).

Nothing of this costs anything on a single server: it is asked once for each connection, by a query that is needed anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: What a new connection is asked for. Not ``SELECT @@…``: MySQL, and MariaDB on some systems, do not know the last two.
SHOW_SETTINGS: Final = (
    "SHOW SESSION VARIABLES WHERE Variable_name IN ('max_allowed_packet', 'wsrep_on', 'wsrep_provider')"
)

#: What a server in a cluster is asked for as well.
SHOW_PROVIDER: Final = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_provider_options', 'binlog_format')"
)

#: Before a transaction begins, wait until this server has what any server had acknowledged until then.
WAIT_FOR_OTHERS: Final = "SET SESSION wsrep_sync_wait = 1, wsrep_dirty_reads = OFF"

#: A change of the schema is made on all servers, at the same place in the order of transactions.
CHANGE_EVERYWHERE: Final = "SET SESSION wsrep_OSU_method = 'TOI'"

#: For each table that has rows by which others are decided: a column that can be moved there and back.
_STEPS: Final[Mapping[str, tuple[str, str]]] = {
    "scheduler_job": ("needs", "1"),
    "scheduler_job_queue": ("attempts", "1"),
    "scheduler_signal": ("sent_at", "INTERVAL 1 MICROSECOND"),
    "scheduler_resource_limit": ("updated_at", "INTERVAL 1 MICROSECOND"),
    "scheduler_resource_permit": ("acquired_at", "INTERVAL 1 MICROSECOND"),
    "scheduler_business_key_reservation": ("reserved_at", "INTERVAL 1 MICROSECOND"),
}


def certifies(settings: Mapping[str, str]) -> bool:
    """True where the answer to `SHOW_SETTINGS` is that of a server in a cluster."""
    provider = settings.get("wsrep_provider", "none")
    return settings.get("wsrep_on", "OFF").upper() in ("ON", "1") and provider.lower() not in ("", "none")


def unsound(settings: Mapping[str, str]) -> tuple[str, ...]:
    """What the answer to `SHOW_PROVIDER` breaks, one sentence for each setting."""
    found: list[str] = []
    options: dict[str, str] = {}
    for option in settings.get("wsrep_provider_options", "").split(";"):
        name, _, value = option.partition("=")
        options[name.strip()] = value.strip()
    for name in ("pc.ignore_quorum", "pc.ignore_sb"):
        if options.get(name, "no").lower() in ("true", "yes", "on", "1"):
            found.append(
                f"the Galera cluster has {name}={options[name]}: after a split both parts take writes, and jobs can run twice; "
                f"set it to false in wsrep_provider_options"
            )
    if settings.get("binlog_format", "ROW").upper() != "ROW":
        found.append(
            f"the Galera node has binlog_format={settings['binlog_format']}, and the servers can only compare rows; set it to ROW"
        )
    return tuple(found)


def holding(table: str, condition: str) -> tuple[str, str]:
    """
    Two statements that change rows and change them back.

    One that changes nothing would write nothing, and then nothing would be compared.
    """
    column, step = _STEPS[table]
    there, back = (f"UPDATE {table} SET {column} = {column} {sign} {step} WHERE {condition}" for sign in "+-")
    return there, back


# --- one migration at a time --------------------------------------------------------------------

#: Nothing in it is ever committed: its one row is there for as long as a transaction is open that has inserted it.
MIGRATION_TABLE: Final = "ratchet_schema_lock"

CREATE_MIGRATION_TABLE: Final = (
    f"CREATE TABLE IF NOT EXISTS {MIGRATION_TABLE} (id INT PRIMARY KEY) ENGINE = InnoDB"
)
#: A streaming transaction: what it writes goes to all servers at once, where it is locked until the transaction ends. If its
#: process dies, or the server to which that is connected, the others roll it back.
BEGIN_STREAMING: Final = (
    "SET SESSION wsrep_trx_fragment_unit = 'statements', wsrep_trx_fragment_size = 1",
    "START TRANSACTION",
)
BE_THE_ONLY_ONE: Final = f"INSERT INTO {MIGRATION_TABLE} (id) VALUES (1)"
#: An error if the servers have rolled it back meanwhile.
STILL_THE_ONLY_ONE: Final = f"SELECT id FROM {MIGRATION_TABLE} WHERE id = 1"
