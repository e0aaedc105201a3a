"""A store's URL in its parts; a mistyped one never prints its password."""

from __future__ import annotations

import logging
import random
import re
import warnings
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from ratchet.cli.app import app
from ratchet.config import resolve_url
from ratchet.model.errors import ConfigurationError, RatchetError
from ratchet.model.options import Options
from ratchet.model.store_url import StoreUrl, shown_url
from ratchet.stores import open_store
from ratchet.stores.mongo.connections import Connections as MongoConnections

PASSWORD = "hunter2"
#: No server is there; nothing may be waited for.
CLOSED = "127.0.0.1:1"


def chain(error: BaseException | None) -> Iterator[str]:
    """Every text that a log of *error* could show."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield f"{one} {one!r} {one.args!r}"
            waiting += [one.__cause__, one.__context__]


MISTYPED = [
    "mysql://u:hunter2/db",
    "mysql://u:hunter2",
    "mysql://u:hunter2localhost/db",
    "mysql://u:hunter2@h:hunter2/db",
    "mysql://u:hunter2@h:/",
    "mysql://u:p[hunter2]y@h:x/db",
    "mysql://u:hunter2@[::1/db",
    "mysql://u:hunter2@::1/db",
    "mysql://u:hunter2@[::1]x/db",
    "mysql://u:hunter2%zz@h/db",
    "mysql://u:hunter2%ff@h/db",
    "mysql://u:hunter2@h@h/db",
    "mysql://u:x/hunter2@h/db",
    "mysql://u:1/hunter2@h/db",
    "mysql://u:a@b/c?d=hunter2@h/db",
    "mysql://u:hunter2 @h/db",
    "mysql://u:hunter2@h:99999/db",
    "mysql://u:hunter2@h/db?hunter2",
    "mysql://u:hunter2@h/db?password=hunter2",
    "mysql://u:hunter2@h/db?charset=hunter2",
    "mysql:/u:hunter2@h/db",
    "mysql//u:hunter2@h/db",
    "u:hunter2@mysql://h/db",
    "hunter2://h/db",
    "oracle://u:hunter2@h/db",
    "postgresql://u:hunter2@h/db?hunter2=1",
    "postgresql://u:hunter2@h:x/db",
    "postgresql://u:hunter2@h#/db",
    "postgresql://u:hunter2@h/db?sslmode",
    "postgresql+psycopg://u:hunter2:h/db",
    "mongodb://u:hun:hunter2@h/db",
    "mongodb://u:hunter2@h:x/db",
    "mongodb://u:hunter2@h/d b",
    "mongodb+srv://u:hunter2@h:1/db",
    "sqlite://u:hunter2@h/db",
    "sqlite:///f.db?password=hunter2",
    "sqlite:///mysql://u:hunter2@h/db",
    "sqlite:///u:hunter2@h/db",
]


@pytest.mark.parametrize("url", MISTYPED)
def test_a_mistyped_url_is_refused_without_its_password(url: str) -> None:
    """The error is ours and says what is wrong; neither it nor an error behind it has the password."""
    with pytest.raises(ConfigurationError) as refused:
        _open(url)
    assert not [text for text in chain(refused.value) if PASSWORD in text]
    assert PASSWORD not in shown_url(url)


@pytest.mark.parametrize("url", MISTYPED)
def test_the_command_line_does_not_print_it(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whichever command: a refusal, no traceback, no password on screen or in a log."""
    with caplog.at_level(logging.DEBUG):
        result = CliRunner().invoke(app, ["jobs", "list", "--url", url])
    assert result.exit_code != 0
    assert PASSWORD not in result.output + caplog.text
    assert not isinstance(result.exception, ValueError), result.exception


def test_two_thousand_random_urls(caplog: pytest.LogCaptureFixture) -> None:
    """A password of any characters, in a URL of any damage, is in no text of what is raised, logged or shown."""
    chance = random.Random(18)
    leaks = []
    with caplog.at_level(logging.INFO), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2000):
            url = _random_url(chance)
            texts = [shown_url(url)]
            try:
                _use(url)
            except RatchetError as error:
                texts += chain(error)
            # anything else is no error of ours, and fails the test
            leaks += [(url, text) for text in texts if PASSWORD in text]
    assert leaks == [], leaks
    assert PASSWORD not in caplog.text


def _open(url: str) -> None:
    if url.startswith("mongodb"):  # its driver reads the URL when it makes its client
        connections = MongoConnections(url, Options())
        connections.client()
        connections.close()
    else:
        open_store(url, Options()).close()


def _use(url: str) -> None:
    parts = StoreUrl.of(url)
    if parts.scheme in ("sqlite", "mongodb+srv"):
        return  # would make a file, or look a name up
    _open(url)
    if parts.scheme in ("mysql", "mariadb", "postgresql") and parts.hosts == CLOSED:
        open_store(url, Options(connect_timeout=timedelta(seconds=1))).migrate()


def _random_url(chance: random.Random) -> str:
    damage = "@:/?#[]% &=,\\'\"\t%zz%ff%2F%40é\0"
    noise = ["".join(chance.choices(damage, k=chance.randrange(0, 4))) for _ in range(2)]
    password = noise[0] + PASSWORD + noise[1]
    if chance.random() < 0.3:
        password = quote(password, safe="")
    scheme = chance.choice(
        ["mysql", "postgresql", "mongodb", "mariadb", "mongodb+srv", "sqlite", "oracle", ""]
    )
    host = chance.choice([CLOSED, CLOSED, "", "h", "[::1]:1", "::1", "[::1", "h:x", "h:99999", "h,i", "h:"])
    query = chance.choice(
        ["", "", f"?password={password}", f"?sslpassword={password}", "?x", f"?a=b&{password}", "?ssl_ca="]
    )
    login = chance.choice(
        [f"u:{password}@", f":{password}@", f"u:{password}", f"{password}:p@", f"u:{password}@@"]
    )
    url = f"{scheme}://{login}{host}/{chance.choice(['db', '', 'a/b'])}{query}"
    if chance.random() < 0.4:  # one character is missing, doubled or wrong, outside of the password itself
        at = chance.randrange(len(url))
        begin = url.index(PASSWORD)
        if not begin <= at < begin + len(PASSWORD):
            url = url[:at] + chance.choice(["", url[at] * 2, chance.choice(damage)]) + url[at + 1 :]
    # right after the one @ it is a host: no reader could tell
    return _random_url(chance) if re.fullmatch(rf"[^@]*@[^@]?{PASSWORD}[^@]*", url) else url


class TestParts:
    """What a good URL means."""

    def test_everything_is_decoded(self) -> None:
        """Percent signs are for the URL only; printing it shows where, not who."""
        url = StoreUrl.of("MySQL://us%40er:p%2Fw@h:1/d%20b?ssl_ca=%2Fca&ssl_key_password=abc")
        assert (url.scheme, url.user, url.password, url.hosts_and_ports) == (
            "mysql",
            "us@er",
            "p/w",
            [("h", 1)],
        )
        assert (url.path, url.parameters) == ("d b", (("ssl_ca", "/ca"), ("ssl_key_password", "abc")))
        assert url.secrets == {"p/w", "p%2Fw", "abc"}
        assert str(url) == "mysql://h:1/d b"
        assert "p/w" not in repr(url)

    @pytest.mark.parametrize(
        ("hosts", "host", "port"),
        [
            ("[::1]:5", "::1", 5),
            ("[fe80::1%25eth0]", "fe80::1%eth0", None),
            ("h", "h", None),
            ("", "", None),
        ],
    )
    def test_hosts(self, hosts: str, host: str, port: int | None) -> None:
        """An IPv6 address stands in brackets; a port may be left out."""
        assert StoreUrl.of(f"mysql://u:p[x]y@{hosts}/db").hosts_and_ports == [(host, port)]

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql:///db?host=/run/postgresql",
            "postgresql://%2Frun%2Fpostgresql/db",
            "postgresql://a:1,b:2/db?target_session_attrs=read-write",
            "mongodb://a:1,b:2/db?replicaSet=rs0&readPreferenceTags=dc:ny&readPreferenceTags=",
            "mongodb://localhost?replicaSet=rs0",
            "postgresql://u:p?#w@h/db",
            "sqlite://",
            "sqlite:///:memory:",
            "sqlite:////a dir/100%/me@work.db",
        ],
    )
    def test_what_the_drivers_take(self, url: str) -> None:
        """Sockets, several hosts, repeated parameters; in a file's name nearly everything."""
        StoreUrl.of(url)

    def test_a_store_named_by_something_else(self) -> None:
        """The value may be a URL in another type, and is not printed."""
        with pytest.raises(ConfigurationError, match="not by a bytes") as refused:
            resolve_url(b"mysql://u:hunter2@h/db")  # type: ignore[arg-type]
        assert PASSWORD not in str(refused.value)
