"""Three PostgreSQL servers under Patroni, with etcd, behind HAProxy; each can be killed, stopped or cut off."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Self

import psycopg

from ratchet.tck.faults import Proxy
from tests.services.postgresql import PostgreSQL
from tests.services.programs import find_program, install_packages
from tests.services.server import Server, ServerUnavailable, children_of, free_port, is_alive

PACKAGES = ("patroni", "python3-etcd", "etcd-server", "etcd-client", "haproxy")
NODES = 3
#: Seconds after which a leader that says nothing is replaced; Patroni allows no less.
TTL = 20
PATIENCE = 120.0
Way = Literal["haproxy", "multihost"]

HAPROXY = """\
global
  maxconn 500
defaults
  mode tcp
  timeout connect 4s
  timeout client 30m
  timeout server 30m
  timeout check 2s
listen primary
  bind 127.0.0.1:{port}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
"""


class Etcd(Server):
    """One etcd: what keeps the leader's key is not under test."""

    name = "etcd"
    variable = "RATCHET_TEST_ETCD_URL"
    users = ("postgres",)

    @classmethod
    def install(cls) -> None:
        _install()

    def prepare(self) -> None:
        self.peer_port = free_port()

    def command(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        settings = {
            "--name": "e",
            "--data-dir": str(self.directory / "data"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": f"e={peer}",
        }
        words = [word for pair in settings.items() for word in pair]
        return [find_program("etcd") or "etcd", "--enable-v2=true", *words]

    def private_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        return _asked(self.port, "/health")[0] == 200


class HAProxy(Server):
    """HAProxy, which leads to whichever node says that it is the primary."""

    name = "HAProxy"
    variable = "RATCHET_TEST_HAPROXY_URL"

    def __init__(self, nodes: list[Node]) -> None:
        super().__init__()
        self.nodes = nodes

    @classmethod
    def install(cls) -> None:
        _install()

    def prepare(self) -> None:
        lines = [
            f"  server {node.member} 127.0.0.1:{node.way_in} check port {node.way_to_rest}\n"
            for node in self.nodes
        ]
        (self.directory / "haproxy.cfg").write_text(HAPROXY.format(port=self.port) + "".join(lines))

    def command(self) -> list[str]:
        return [find_program("haproxy") or "haproxy", "-db", "-f", str(self.directory / "haproxy.cfg")]

    def private_url(self) -> str:
        return f"postgresql://ratchet@127.0.0.1:{self.port}/postgres"

    def answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Node(Server):
    """
    One member: Patroni and the PostgreSQL that it runs.

    Everybody else, and the node itself on its way to etcd, goes through a proxy of its own, so that it can be cut off
    without any right on the machine's network.
    """

    name = "Patroni"
    variable = "RATCHET_TEST_PATRONI_URL"
    users = ("postgres",)

    def __init__(self, member: str, etcd: Etcd, *, synchronous: bool) -> None:
        super().__init__()
        self.member = member
        self.etcd = etcd
        self.synchronous = synchronous
        self.rest_port = 0
        self._proxies: list[Proxy] = []

    @classmethod
    def install(cls) -> None:
        PostgreSQL.install()
        _install()

    def prepare(self) -> None:
        self.rest_port = free_port()
        ports = (self.port, self.rest_port, self.etcd.port)
        self._proxies = [Proxy(("127.0.0.1", port)) for port in ports]
        configuration = self.directory / "patroni.json"  # JSON is YAML
        configuration.write_text(json.dumps(self._configuration()))
        configuration.chmod(0o644)

    @property
    def way_in(self) -> int:
        """The port where others find this node's PostgreSQL."""
        return self._proxies[0].address[1]

    @property
    def way_to_rest(self) -> int:
        """The port where others ask this node's Patroni."""
        return self._proxies[1].address[1]

    def command(self) -> list[str]:
        return [find_program("patroni") or "patroni", str(self.directory / "patroni.json")]

    def private_url(self) -> str:
        return f"postgresql://ratchet@127.0.0.1:{self.port}/postgres"

    def answers(self) -> bool:
        """Whether its PostgreSQL runs, as the primary or as a standby."""
        return self.is_primary() or self._says("/replica")

    def is_primary(self) -> bool:
        """True if this node takes writes, by its own word."""
        return self._says("/primary")

    def cluster(self) -> list[dict[str, Any]]:
        """What this node knows of all members."""
        status, body = _asked(self.rest_port, "/cluster")
        found: list[dict[str, Any]] = json.loads(body)["members"] if status == 200 else []
        return found

    def switch_over(self, candidate: str) -> None:
        """Hand the lead to *candidate* in the planned way; returns when that is done."""
        wanted = json.dumps({"leader": self.member, "candidate": candidate})
        status, body = _asked(self.rest_port, "/switchover", "POST", wanted, seconds=60)
        assert status == 200, f"no switchover: {status} {body}"

    def begin(self) -> None:
        """Start without waiting until it answers."""
        if not self.port:
            self.install()
            self._settle()
        self._launch()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """SIGSTOP for Patroni and every process of its PostgreSQL; SIGCONT at the end."""
        family = self._family()
        _send(family, signal.SIGSTOP)
        try:
            yield
        finally:
            _send(family, signal.SIGCONT)

    @contextmanager
    def postgresql_frozen(self) -> Iterator[None]:
        """The same for PostgreSQL alone: Patroni goes on and keeps it a member."""
        family = self._family()[1:]
        _send(family, signal.SIGSTOP)
        try:
            yield
        finally:
            _send(family, signal.SIGCONT)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Nobody reaches this node, and it does not reach etcd: every byte is swallowed."""
        for proxy in self._proxies:
            proxy.silent = True
        try:
            yield
        finally:
            for proxy in self._proxies:
                proxy.silent = False
                proxy.cut_all()  # what was swallowed is missing: these connections are of no use any more

    def kill(self) -> None:
        """SIGKILL for Patroni and every process of its PostgreSQL, as when a machine loses its power."""
        family = self._family()
        _send(family, signal.SIGKILL)
        self._own_process().wait()
        while any(map(is_alive, family)):
            time.sleep(0.005)
        self._forget()

    def stop(self) -> None:
        family = self._family() if self._process is not None else []
        super().stop()
        _send([pid for pid in family if is_alive(pid)], signal.SIGKILL)

    def close(self) -> None:
        super().close()
        for proxy in self._proxies:
            proxy.close()
        self._proxies = []

    def _family(self) -> list[int]:
        """Patroni, the postmaster (in a session of its own), and its children."""
        file = self.directory / "data" / "postmaster.pid"
        try:
            postmaster = int(file.read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return [self.pid]
        return [self.pid, postmaster, *children_of(postmaster)] if is_alive(postmaster) else [self.pid]

    def _says(self, path: str) -> bool:
        return self.rest_port != 0 and _asked(self.rest_port, path)[0] == 200

    def _configuration(self) -> dict[str, Any]:
        parameters = {
            "max_connections": 150,
            "shared_buffers": "64MB",
            "wal_keep_size": "256MB",
            "max_wal_senders": 8,
            "max_replication_slots": 8,
            "wal_log_hints": "on",
            "timezone": "UTC",
        }
        trusted = ["local all all trust", "host all all 127.0.0.1/32 trust"]
        return {
            "scope": "ratchet",
            "name": self.member,
            "restapi": {
                "listen": f"127.0.0.1:{self.rest_port}",
                "connect_address": f"127.0.0.1:{self.way_to_rest}",
            },
            # As a "proxy" etcd is asked at this address alone, and not at the one that it names itself. By its older
            # interface, where a leader that was stopped compares before it writes the leader's key: Patroni 3.0.2
            # writes it without looking by the newer one ("etcd3"), and then two nodes take writes.
            "etcd": {"use_proxies": True, "hosts": [f"127.0.0.1:{self._proxies[2].address[1]}"]},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": 2,
                    "retry_timeout": 5,
                    "maximum_lag_on_failover": 1 << 20,
                    "synchronous_mode": self.synchronous,
                    "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": parameters},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums", "no-sync"],
                "pg_hba": [*trusted, "host replication all 127.0.0.1/32 trust"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.way_in}",
                "data_dir": str(self.directory / "data"),
                "bin_dir": str(PostgreSQL.programs()),
                "use_unix_socket": True,
                "use_unix_socket_repl": True,
                "pgpass": str(self.directory / "pgpass"),
                "authentication": {
                    "superuser": {"username": "ratchet", "password": "x"},
                    "replication": {"username": "replicator", "password": "x"},
                    "rewind": {"username": "ratchet", "password": "x"},
                },
                "parameters": {"unix_socket_directories": str(self.directory)},
                "create_replica_methods": ["basebackup"],
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
            },
            "watchdog": {"mode": "off"},
        }


class Patroni(PostgreSQL):
    """
    Looks like one server, by way of HAProxy or (*way*) by the addresses of all three nodes.

    *synchronous*: a commit is acknowledged when a standby has it, and only such a standby is promoted.
    """

    name = "Patroni"

    def __init__(self, *, synchronous: bool = True, way: Way = "haproxy") -> None:
        super().__init__()
        self.way = way
        self.synchronous = synchronous
        self.etcd = Etcd()
        self.nodes = [Node(f"n{n}", self.etcd, synchronous=synchronous) for n in range(1, NODES + 1)]
        self.haproxy = HAProxy(self.nodes)

    @classmethod
    def install(cls) -> None:
        Node.install()

    def start(self) -> Self:
        first, *others = self.nodes
        try:
            self.etcd.start()
            first.start()
            _until(first.is_primary, "no node became the primary", first)
            for node in others:  # together: each takes its copy for some seconds
                node.begin()
            self.haproxy.start()
            self.wait_until_whole()
        except BaseException:
            self.close()
            raise
        ways = {
            "haproxy": f"127.0.0.1:{self.haproxy.port}",
            "multihost": ",".join(f"127.0.0.1:{node.way_in}" for node in self.nodes),
        }
        self.url = f"postgresql://ratchet@{ways[self.way]}/postgres"
        if self.way == "multihost":
            self.url += "?target_session_attrs=read-write"
        _until(self.answers, f"nobody answers at {self.url}", first)
        return self

    def close(self) -> None:
        for server in (self.haproxy, *self.nodes, self.etcd):
            server.close()

    def primary(self) -> Node:
        """The node that takes writes now."""
        found: list[Node] = []

        def is_found() -> bool:
            found[:] = [node for node in self.nodes if node.running and node.is_primary()]
            return len(found) == 1

        _until(is_found, "there is not one primary", self.nodes[0])
        return found[0]

    def successor(self) -> Node:
        """A standby that may be promoted; in synchronous mode the one that has every commit."""
        primary = self.primary()
        roles = {member["name"]: member["role"] for member in primary.cluster()}
        wanted = "sync_standby" if self.synchronous else "replica"
        return random.choice([node for node in self.nodes if roles.get(node.member) == wanted])

    def switch_over(self) -> None:
        """A planned change of the primary."""
        successor = self.successor()
        self.primary().switch_over(successor.member)

    def wait_until_whole(self) -> None:
        """Until there is one primary, and the two others follow it."""
        _until(self.is_whole, "the cluster has not come together", *self.nodes)

    def is_whole(self) -> bool:
        """True with one primary and two standbys that stream, one of them synchronous if that is wanted."""
        leaders = [node for node in self.nodes if node.running and node.is_primary()]
        if len(leaders) != 1 or not all(node.running and node.answers() for node in self.nodes):
            return False
        members = leaders[0].cluster()
        roles = sorted(member["role"] for member in members)
        wanted = (
            ["leader", "replica", "sync_standby"] if self.synchronous else ["leader", "replica", "replica"]
        )
        return roles == wanted and self._streaming(leaders[0]) == NODES - 1

    @staticmethod
    def _streaming(leader: Node) -> int:
        try:
            with psycopg.connect(leader.url, autocommit=True, connect_timeout=5) as connection:
                found = connection.execute(
                    "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
                ).fetchone()
        except psycopg.Error:
            return 0
        return int(found[0]) if found else 0


def _install() -> None:
    if not all(find_program(name) for name in ("patroni", "etcd", "haproxy")):
        install_packages("Patroni", "PATH", *PACKAGES, instead="one that has patroni, etcd and haproxy")


def _asked(
    port: int, path: str, method: str = "GET", body: str | None = None, *, seconds: float = 2.0
) -> tuple[int, str]:
    """Status and body of an HTTP answer; 0 if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


def _send(family: list[int], number: signal.Signals) -> None:
    for pid in family:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # ended by itself in between


def _until(condition: Any, problem: str, *servers: Server) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(server.log_tail() for server in servers)
            raise ServerUnavailable(f"Patroni: {problem} within {PATIENCE:.0f} s:\n{logs}")
        time.sleep(0.1)
