"""URLs that name several servers: whoever takes writes is found, and found again after a switch."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from ratchet import Scheduler
from ratchet.model.errors import ConfigurationError, RatchetError, StoreUnavailable
from ratchet.model.options import Options
from ratchet.stores import open_store
from ratchet.stores.sql.dialects.hosts import Hosts, NotConnected
from tests.services.mariadb import MariaDB
from tests.services.postgresql import PostgreSQL
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(180)

QUICK = Options(heartbeat=0.5, silence=20, connect_timeout=4, concurrency=2)
ran: list[str] = []


def note(name: str) -> str:
    """A job."""
    ran.append(name)
    return name


@dataclass
class Pair:
    """Two servers, of which the first one takes writes; *url* names the other one first."""

    url: str
    old: PostgreSQL | MariaDB
    new: PostgreSQL | MariaDB

    def switch(self) -> None:
        """The other one becomes the primary; on MariaDB the old one goes on answering."""
        if isinstance(self.new, MariaDB) and isinstance(self.old, MariaDB):
            self.old.execute("SET GLOBAL read_only = 1")
            (place,) = self.old.execute("SELECT @@gtid_binlog_pos")
            assert self.new.execute("SELECT MASTER_GTID_WAIT(%s, 30)", place[0]) == ((0,),)
            self.new.execute("STOP SLAVE")
            self.new.execute("SET GLOBAL read_only = 0")
        else:
            assert isinstance(self.new, PostgreSQL)
            self.old.stop()  # what it has committed is sent before it ends
            self.new.promote()


@pytest.fixture(params=["postgresql", "mysql"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    yield from (_postgresql() if request.param == "postgresql" else _mysql())


def _postgresql() -> Iterator[Pair]:
    with PostgreSQL() as primary, primary.standby() as standby:
        name = urlsplit(primary.create_database()).path
        until(lambda: standby.has_database(name.strip("/")), 60, "no replication")
        yield Pair(
            f"postgresql://ratchet@127.0.0.1:{standby.port},127.0.0.1:{primary.port}{name}"
            "?target_session_attrs=read-write",
            primary,
            standby,
        )


def _mysql() -> Iterator[Pair]:
    log = ("--log-bin=log", "--log-slave-updates=1")
    with (
        MariaDB(options=("--server-id=1", *log)) as primary,
        MariaDB(options=("--server-id=2", *log, "--read-only=1")) as replica,
    ):
        replica.execute(
            f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, master_user='root', "
            "master_use_gtid=slave_pos"
        )
        replica.execute("START SLAVE")
        name = urlsplit(primary.create_database()).path
        # an administrator may write to a server that is read-only
        primary.execute("CREATE USER app IDENTIFIED BY 'secret'")
        primary.execute(f"GRANT ALL ON {name.strip('/')}.* TO app")
        until(lambda: replica.execute("SELECT 1 FROM mysql.user WHERE user = 'app'"), 60, "no replication")
        yield Pair(
            f"mysql://app:secret@127.0.0.1:{replica.port},127.0.0.1:{primary.port}{name}", primary, replica
        )


def test_a_node_follows_the_primary(pair: Pair) -> None:
    """
    The URL names the standby first: everything goes to the primary. After a switch the same scheduler and its node go on.

    Nothing is started again, what was acknowledged before is there, and what waited runs.
    """
    scheduler = Scheduler(pair.url, allow=[__name__], options=QUICK)
    reader = Scheduler(pair.url, allow=[__name__], options=QUICK)
    scheduler.migrate()
    with closing(scheduler), closing(reader), scheduler:
        assert scheduler.enqueue_now(note, "before").result(timeout=60) == "before"
        later = scheduler.schedule(timedelta(hours=1), note, "later").submit()
        assert reader.jobs.count() == 2

        pair.switch()

        def submitted() -> bool:
            try:
                return scheduler.enqueue_now(note, "after").result(timeout=60) == "after"
            except StoreUnavailable:
                return False

        until(submitted, 60, "the new primary is not found")
        assert scheduler.reschedule_job(later.id, timedelta(0))
        assert later.result(timeout=60) == "later"
        # one who only reads follows too, although the old primary may still answer
        until(lambda: reads(reader) == scheduler.jobs.count() >= 3, 60, "the reader has not followed")


def reads(scheduler: Scheduler) -> int | None:
    try:
        return scheduler.jobs.count()
    except RatchetError:
        return None


def test_no_server_takes_writes(pair: Pair) -> None:
    """The error names each host with its own reason, no password, and passes as soon as there is a primary."""
    pair.old.stop()
    scheduler = Scheduler(pair.url, allow=[__name__], options=QUICK)
    with closing(scheduler):
        with pytest.raises(StoreUnavailable) as refused:
            scheduler.migrate()
        text = str(refused.value)
        for server in (pair.old, pair.new):
            assert f"127.0.0.1:{server.port}: " in text
        assert "read-only" in text
        assert "secret" not in text


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def test_mongodb_finds_its_primary_itself(mongodb_url: str) -> None:
    """Several hosts in a MongoDB URL are the driver's own business, and one that is down is no obstacle."""
    parts = urlsplit(mongodb_url)
    url = mongodb_url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{free_port()},{parts.hostname}:{parts.port}")  # fmt: skip
    assert url.count("127.0.0.1:") == 2
    store = open_store(url, QUICK)
    with closing(store):
        assert store.migrate()
        assert store.counts() is not None


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://a,b/db?target_session_attrs=standby", "but Ratchet writes"),
        ("postgresql://a/db?target_session_attrs=prefer-standby", "but Ratchet writes"),
        ("postgresql://a:1,b:2/db?hostaddr=127.0.0.1", "names 2 hosts, but 1 in hostaddr"),
        ("postgresql:///db?host=a,b,c&port=1,2", "names 3 hosts, but 2 in port"),
        ("mysql://a,b/db?unix_socket=/run/s", "several hosts and a unix_socket"),
    ],
)
def test_urls_that_make_no_sense(url: str, problem: str) -> None:
    """They are refused before anything is connected, in words."""
    with pytest.raises(ConfigurationError, match=problem):
        open_store(url, QUICK)


def test_the_last_primary_is_asked_first() -> None:
    """A host that is down is waited for once, not for each new connection; the others are tried when the last one fails."""
    asked: list[str] = []
    down = {"a"}

    def connect(host: str) -> str:
        asked.append(host)
        if host in down:
            raise NotConnected(f"{host} is down")
        return host

    hosts = Hosts(["a", "b", "c"])
    assert [hosts.first_that(connect) for _ in range(3)] == ["b", "b", "b"]
    assert asked == ["a", "b", "b", "b"]
    down.add("b")
    assert hosts.first_that(connect) == "c"
    down.update("abc")
    with pytest.raises(NotConnected, match="c is down; a is down; b is down"):
        hosts.first_that(connect)
