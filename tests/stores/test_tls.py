"""
TLS to real servers with certificates of the test's own: whoever names a CA gets a connection that is checked in full.

The table of docs/how-to/database-access.md is that of `TestANamedCa`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymongo
import pytest

from ratchet.model.errors import ConfigurationError, StoreUnavailable
from ratchet.model.options import Options
from ratchet.stores import open_store, transport
from ratchet.stores.sql.dialects.mysql.connections import Address
from tests.services.mariadb import MariaDB
from tests.services.mongodb import MongoDB
from tests.services.postgresql import PostgreSQL
from tests.services.server import Server
from tests.support.certificates import Authority
from tests.support.waiting import until


def _install(server: Server, authority: Authority, lasts: timedelta = timedelta(days=2)) -> tuple[Path, Path]:
    """Certificate and key for the name ``localhost`` alone, in the server's folder and for its user."""
    owner = server.directory.stat()
    names = ("server.pem", "server.key", "both.pem", "ca.pem")
    paths = [server.directory / name for name in names]
    certificate, private = authority.issue("localhost", lasts=lasts)
    contents = (certificate, private, certificate + private, authority.path.read_bytes())
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
        path.chmod(0o600)
        os.chown(path, owner.st_uid, owner.st_gid)
    return paths[0], paths[1]


class MariaDBWithTls(MariaDB):
    authority: Authority
    ca_parameter = "ssl_ca"

    def reload(self) -> None:
        self._execute("FLUSH SSL")

    def prepare(self) -> None:
        super().prepare()
        _install(self, self.authority)

    def command(self) -> list[str]:
        return [
            *super().command(),
            f"--ssl-cert={self.directory / 'server.pem'}",
            f"--ssl-key={self.directory / 'server.key'}",
        ]


class MongoDBWithTls(MongoDB):
    authority: Authority
    ca_parameter = "directConnection=true&tls=true&tlsCAFile"

    def prepare(self) -> None:
        super().prepare()
        _install(self, self.authority)

    def command(self) -> list[str]:
        files = {"--tlsCertificateKeyFile": "both.pem", "--tlsCAFile": "ca.pem"}
        words = [word for name, file in files.items() for word in (name, str(self.directory / file))]
        return [
            *super().command(),
            "--tlsMode",
            "allowTLS",
            *words,
            "--tlsAllowConnectionsWithoutCertificates",
        ]

    def reload(self) -> None:
        client: pymongo.MongoClient[dict[str, Any]]
        with pymongo.MongoClient(self.url) as client:
            client.admin.command("rotateCertificates")


class PostgreSQLWithTls(PostgreSQL):
    authority: Authority
    ca_parameter = "sslrootcert"

    def reload(self) -> None:
        with self._connect() as connection:
            connection.execute("SELECT pg_reload_conf()")

    def prepare(self) -> None:
        super().prepare()
        certificate, key = _install(self, self.authority)
        self.options |= {"ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key)}


@dataclass
class Secured:
    """A server with TLS: its certificate is for ``localhost``, and comes from `known`."""

    server: Any
    known: Authority
    unknown: Authority

    def connect(self, host: str, query: str) -> None:
        """Ask the database once, by this host name and with these parameters; `StoreUnavailable` if that is not possible."""
        parts = urlsplit(self.url)
        user = f"{parts.username}@" if parts.username else ""
        store = open_store(
            parts._replace(netloc=f"{user}{host}:{parts.port}", query=query).geturl(),
            Options(connect_timeout=self.patience, auto_migrate=False),
        )
        try:
            store.migrate()
        finally:
            store.close()

    @property
    def url(self) -> str:
        return self._url

    def __post_init__(self) -> None:
        self._url = self.server.create_database()
        #: Seconds; MongoDB's driver goes on trying for so long, whatever is wrong with the certificate.
        self.patience = 2.0 if isinstance(self.server, MongoDB) else 5.0

    @contextmanager
    def expired(self) -> Iterator[None]:
        """Inside the block the server's certificate has expired."""
        # MongoDB takes no certificate that has expired already
        lasts = timedelta(seconds=2) if isinstance(self.server, MongoDB) else timedelta(days=-1)
        end = datetime.now(UTC) + lasts
        _install(self.server, self.known, lasts)
        self.server.reload()
        until(lambda: datetime.now(UTC) > end)
        yield
        _install(self.server, self.known)
        self.server.reload()

    def connects(self, host: str, query: str) -> bool:
        try:
            self.connect(host, query)
        except StoreUnavailable:
            return False
        return True


@pytest.fixture(
    scope="module",
    params=[MariaDBWithTls, PostgreSQLWithTls, MongoDBWithTls],
    ids=["mysql", "postgresql", "mongodb"],
)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("certificates")
    known, unknown = Authority(folder, "known"), Authority(folder, "unknown")
    server = request.param()
    server.authority = known
    with server:
        yield Secured(server, known, unknown)


@pytest.fixture
def ca(secured: Secured) -> str:
    """The parameter that names a CA."""
    return str(secured.server.ca_parameter)


class TestANamedCa:
    def test_the_right_one_is_enough(self, secured: Secured, ca: str) -> None:
        """The CA alone, without another option, connects to the server that it vouches for."""
        secured.connect("localhost", f"{ca}={secured.known.path}")

    def test_an_unknown_one_is_refused(self, secured: Secured, ca: str) -> None:
        """Whoever answers with a certificate of another CA gets neither password nor statement."""
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate verify failed"):
            secured.connect("localhost", f"{ca}={secured.unknown.path}")

    def test_an_expired_certificate_is_refused(self, secured: Secured, ca: str) -> None:
        """Of the right CA and for the right host, but valid until yesterday; a new one is taken without a restart."""
        query = f"{ca}={secured.known.path}"
        with secured.expired():
            until(lambda: not secured.connects("localhost", query))  # a server may reload a moment later
            with pytest.raises(
                StoreUnavailable, match=r"(?i)certificate( has)? expired|certificate verify failed"
            ):
                secured.connect("localhost", query)
        until(lambda: secured.connects("localhost", query))

    def test_the_certificate_of_another_host_is_refused(self, secured: Secured, ca: str) -> None:
        """The right CA vouches for localhost, not for this address."""
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate verify failed|does not match host name"):
            secured.connect("127.0.0.1", f"{ca}={secured.known.path}")

    def test_the_checks_can_be_turned_off_by_name(self, secured: Secured, ca: str) -> None:
        """Each of them, in the words of the product."""
        no_host, nothing = {
            "ssl_ca": ("ssl_verify_identity=false", "ssl_verify_cert=false"),
            "sslrootcert": ("sslmode=verify-ca", "sslmode=prefer"),
        }.get(ca, ("tlsAllowInvalidHostnames=true", "tlsAllowInvalidCertificates=true"))
        secured.connect("127.0.0.1", f"{ca}={secured.known.path}&{no_host}")
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate verify failed"):
            secured.connect("127.0.0.1", f"{ca}={secured.unknown.path}&{no_host}")
        secured.connect("127.0.0.1", f"{ca}={secured.unknown.path}&{nothing}")

    def test_a_url_without_tls_options_connects(self, secured: Secured) -> None:
        """As before: encrypted where the server offers it, and nobody is asked."""
        secured.connect("127.0.0.1", "directConnection=true" if isinstance(secured.server, MongoDB) else "")


@pytest.mark.parametrize(
    ("product", "query"),
    [
        ("mysql", "ssl_ca={}"),
        ("postgresql", "sslrootcert={}"),
        ("mongodb", "tls=true&tlsCAFile={}&serverSelectionTimeoutMS=2000"),
    ],
)
def test_a_server_without_tls_is_refused(
    product: str, query: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Whoever asks for TLS does not get a connection in clear, also if somebody in between removes the offer."""
    url = request.getfixturevalue(f"{product}_url")
    more = query.format(Authority(tmp_path, "some").path)
    store = open_store(f"{url}{'&' if '?' in url else '?'}{more}", Options(auto_migrate=False))
    with pytest.raises(StoreUnavailable, match=r"(?i)ssl|tls"):
        store.migrate()
    store.close()


class TestMysql:
    @pytest.mark.parametrize("option", ["ssl_verify_cert=true", "ssl_verify_identity=true"])
    def test_a_check_without_a_ca_asks_the_system(self, secured: Secured, option: str) -> None:
        """The certificates that the system trusts do not include the test's."""
        if isinstance(secured.server, MariaDB):
            with pytest.raises(StoreUnavailable, match=r"(?i)certificate verify failed"):
                secured.connect("localhost", option)

    @pytest.mark.parametrize(
        ("query", "cert", "identity", "required"),
        [
            ("ssl_ca=x", True, True, True),
            ("ssl_verify_cert=true", True, True, True),
            ("ssl_ca=x&ssl_verify_identity=false", True, False, True),
            ("ssl_ca=x&ssl_verify_cert=0", False, False, True),
            ("ssl_cert=x", True, True, True),
            ("ssl_verify_cert=off", False, False, False),
            ("ssl_disabled=true", True, True, False),
            ("", True, True, False),
        ],
    )
    def test_what_each_option_means(self, query: str, cert: bool, identity: bool, required: bool) -> None:
        """An option that asks for TLS asks for all of it, unless another one takes something back."""
        tls = Address.of(f"mysql://u@127.0.0.1/db?{query}").tls
        assert (tls.verify_cert, tls.verify_identity, tls.required) == (cert, identity, required)

    @pytest.mark.parametrize(
        "query",
        [
            "ssl_verify_cert=maybe",
            "ssl_disabled=true&ssl_ca=x",
            "ssl_key=x",
            "ssl_verify_identity=true&ssl_verify_cert=false",
        ],
    )
    def test_contradictions_are_refused(self, query: str) -> None:
        """A typing error must not leave a connection unprotected."""
        with pytest.raises(ConfigurationError, match="the MySQL URL"):
            Address.of(f"mysql://u@127.0.0.1/db?{query}")


class TestUnprotected:
    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("mysql://u@db.example/d", True),
            ("mysql://u@db.example/d?ssl_verify_cert=false", False),
            ("mysql://u@db.example/d?ssl_disabled=true", False),
            ("mysql://u@127.0.0.1/d", False),
            ("mysql://u@[::1]/d", False),
            ("postgresql://u@db.example/d", True),
            ("postgresql://u@db.example/d?sslmode=prefer", False),
            ("postgresql://u@localhost,db.example/d", True),
            ("postgresql://u@localhost/d", False),
            ("postgresql:///d", False),
            ("mongodb://u:p@db.example:27017/d", True),
            ("mongodb://u:p@db.example/d?tls=false", False),
            ("mongodb://localhost:27017,127.0.0.1:27018/d", False),
        ],
    )
    def test_a_remote_host_without_a_word_about_tls_is_noted_once(
        self, url: str, said: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The line names the host, and what to add to the URL either way; nothing is said of this machine."""
        monkeypatch.setattr(transport, "_said", set())
        monkeypatch.delenv("PGSSLMODE", raising=False)
        with caplog.at_level(logging.INFO, logger="ratchet.stores"):
            for _ in range(2):
                open_store(url, Options(auto_migrate=False)).close()
        lines = [record.getMessage() for record in caplog.records if record.name == "ratchet.stores"]
        assert len(lines) == said
        if said:
            assert "at db.example is not checked" in lines[0]
            assert "to the URL, or" in lines[0]
