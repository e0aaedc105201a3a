from __future__ import annotations

from collections.abc import Iterator

import pymysql
import pytest

from tests.services.galera import GaleraCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[GaleraCluster]:
    with GaleraCluster() as running:
        yield running


def test_every_node_takes_writes_that_the_others_have(cluster: GaleraCluster) -> None:
    """A row written through each of the three nodes is read through each of them, by reads that wait for it."""
    name = cluster.create_database()[0].rpartition("/")[2]
    cluster.nodes[0].execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    for node in cluster.nodes:
        node.execute(f"SET STATEMENT wsrep_sync_wait = 7 FOR INSERT INTO {name}.t VALUES ({node.number})")
    for node in cluster.nodes:
        rows = node.execute(f"SET STATEMENT wsrep_sync_wait = 1 FOR SELECT id FROM {name}.t ORDER BY id")
        assert rows == ((1,), (2,), (3,))


def test_a_killed_node_comes_back_into_the_cluster(cluster: GaleraCluster) -> None:
    """A node that was killed rejoins by its own start, and has what was written meanwhile."""
    first, _, last = cluster.nodes
    name = cluster.create_database()[0].rpartition("/")[2]
    last.kill()
    with pytest.raises(pymysql.err.Error):
        last.execute("SELECT 1")
    first.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    first.execute(f"INSERT INTO {name}.t VALUES (1)")
    last.start()
    assert last.execute(f"SET STATEMENT wsrep_sync_wait = 1 FOR SELECT id FROM {name}.t") == ((1,),)
    assert first.cluster_size == 3
