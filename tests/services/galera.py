"""A Galera cluster: MariaDB nodes that all take writes, and certify them against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pymysql

from tests.services.mariadb import MariaDB
from tests.services.programs import find_program, install_packages
from tests.services.server import ServerUnavailable, free_port

PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so")
SYNCED = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_local_state_comment'"
SIZE = (
    "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_size'"
)


class GaleraNode(MariaDB):
    """One node; `GaleraCluster` makes and starts it."""

    name = "Galera"
    variable = "RATCHET_TEST_GALERA_URL"

    def __init__(self, number: int, group_port: int, members: list[int]) -> None:
        super().__init__()
        self.number = number
        self.bootstraps = False  # of the next start: the node is a new cluster of its own
        self._group_port = group_port
        self._members = members
        self._transfer_ports = free_port(), free_port()

    @classmethod
    def install(cls) -> None:
        super().install()
        if _provider() is None or find_program("rsync") is None:
            install_packages(cls.name, cls.variable, "galera-4", "rsync")

    def command(self) -> list[str]:
        ist, sst = self._transfer_ports
        provider = {
            "base_port": self._group_port,
            "gmcast.listen_addr": f"tcp://127.0.0.1:{self._group_port}",
            "ist.recv_addr": f"127.0.0.1:{ist}",
            "gcache.size": "32M",
            "evs.suspect_timeout": "PT3S",
            "evs.inactive_timeout": "PT8S",
        }
        members = ",".join(f"127.0.0.1:{port}" for port in self._members)
        return [
            *super().command(),
            f"--server-id={self.number}",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--innodb-buffer-pool-size=64M",
            "--wsrep-on=ON",
            f"--wsrep-provider={_provider()}",
            "--wsrep-cluster-name=ratchet",
            f"--wsrep-cluster-address=gcomm://{members}",
            f"--wsrep-node-name=n{self.number}",
            f"--wsrep-node-address=127.0.0.1:{self._group_port}",
            f"--wsrep-provider-options={';'.join(f'{name}={value}' for name, value in provider.items())}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{sst}",
            *(["--wsrep-new-cluster"] if self.bootstraps else []),
        ]

    def answers(self) -> bool:
        try:
            return self.execute(SYNCED) == (("Synced",),)
        except pymysql.err.Error:
            return False

    @property
    def cluster_size(self) -> int:
        """How many nodes this one sees, itself included."""
        ((size,),) = self.execute(SIZE)
        return int(size)


class GaleraCluster:
    """Three nodes on loopback ports; a node that was killed comes back with its own `start`."""

    def __init__(self, count: int = 3) -> None:
        members: list[int] = []
        while len(members) < count:
            if (port := free_port()) not in members:
                members.append(port)
        self.nodes = [GaleraNode(number, port, members) for number, port in enumerate(members, 1)]

    def __enter__(self) -> Self:
        try:
            first, *others = self.nodes
            first.bootstraps = True
            first.start()
            first.bootstraps = False
            for node in others:
                node.start()
            if any(node.cluster_size != len(self.nodes) for node in self.nodes):
                raise ServerUnavailable(f"the Galera nodes did not find each other:\n{first.log_tail()}")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all nodes, the one that began last, and remove their data."""
        for node in reversed(self.nodes):
            node.close()

    def create_database(self) -> list[str]:
        """A new, empty database; its URL through each of the nodes."""
        first = self.nodes[0].create_database()
        name = first.rpartition("/")[2]
        return [f"{node.url}{name}" for node in self.nodes]


def _provider() -> str | None:
    return next((path for path in PROVIDERS if Path(path).exists()), None)
