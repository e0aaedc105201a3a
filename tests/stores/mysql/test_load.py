"""What a health check reads on MySQL: as many rows at 20,000 waiting jobs as at 1,000."""

from __future__ import annotations

from ratchet.stores.sql.claiming.load import read_load
from ratchet.stores.sql.claiming.unreachable import unreachable_jobs
from ratchet.stores.sql.store import SqlStore
from tests.stores.backlog import NOW, insert, spread
from tests.stores.mysql.test_claims import analyze, counted

MOST = 100


def test_the_backlog_does_not_change_it(store: SqlStore, mysql_url: str) -> None:
    """With stale and with fresh statistics."""
    reads: list[int] = []

    def measure() -> None:
        load, handlers = counted(store, lambda session: read_load(session, NOW, MOST))
        assert (load.pending, load.due) == (MOST, MOST + 2)
        kinds = ("first", "key", "next", "prev", "rnd", "rnd_next")
        beside, looks = counted(store, unreachable_jobs)
        assert beside == []
        reads.append(sum(handlers[f"read_{how}"] + looks[f"read_{how}"] for how in kinds))

    insert(store, spread(1000, queues=3))
    measure()
    for start in range(0, 20_000, 5000):
        insert(store, spread(5000, seed=start, queues=3))
    measure()
    analyze(mysql_url)
    measure()
    assert max(reads) < 2 * reads[0], reads
