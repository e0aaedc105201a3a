"""
The one place that takes a store's URL apart.

A mistyped URL must not print its password. So an error here says what is wrong and never quotes the URL, and it is
raised outside of every ``except``: a parser's own error, which may quote the URL, is not in its chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote, unquote_to_bytes

from ratchet.model.errors import ConfigurationError

# Without a user: messages pass the sanitizer, which takes whatever stands before an @ for a secret.
_FORM = "scheme://host:port/database, and before the host user, colon, password, @"
_ENCODE = "in a user name or password write %25 for %, %2F for /, %3A for :, %40 for @, %23 for # and %20 for a space"
_PRODUCTS = {
    "mysql": "MySQL",
    "mariadb": "MySQL",
    "postgres": "PostgreSQL",
    "mongodb": "MongoDB",
    "sqlite": "SQLite",
}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)
_PLAIN = re.compile(r"[a-z_+]+", re.IGNORECASE)  # a name that is surely no password
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f]")
_BAD_PERCENT = re.compile(r"%(?![0-9a-f]{2})", re.IGNORECASE)
_HOST = re.compile(r"(?:\[[0-9a-f:.]+(?:%25\w+)?\]|[\w.~%-]*)(?::(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_DATABASE = re.compile(r"[\w.~%$+-]*/?")
_LIKE_A_LOGIN = re.compile(r"://|:[^/]*@")
_SECRET_NAME = re.compile(r"pass|secret|token|properties", re.IGNORECASE)


@dataclass(frozen=True)
class StoreUrl:
    """A URL in its parts, all decoded but *hosts*; printing it shows neither user, password nor parameters."""

    scheme: str
    hosts: str  # as written: one, or several with commas
    path: str  # without the first slash
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    parameters: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    #: What no message may contain, in every spelling.
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of(cls, url: str) -> StoreUrl:
        """The parts of *url*; `ConfigurationError` says what is wrong, without any part of the URL."""
        scheme, found, rest = url.partition("://")
        if not found or not _SCHEME.fullmatch(scheme):
            raise ConfigurationError(f"the store's URL has no scheme at its start; write {_FORM}")
        scheme = scheme.lower()
        if scheme == "sqlite":
            return cls(scheme, "", _sqlite_path(rest))
        if _UNPRINTABLE.search(rest):
            raise _wrong(scheme, f"has a space or a control character in it; {_ENCODE}")
        authority, _, tail = rest.partition("/")
        login, at, hosts = authority.rpartition("@")
        if not tail and "?" in hosts:
            hosts, _, query = hosts.partition("?")
            tail = "?" + query
        path, _, query = tail.partition("?")
        if "@" in login or "@" in tail or "#" in hosts + tail or "?" in hosts:
            raise _wrong(scheme, f"can have one @ only, before its host, and no #; {_ENCODE}")
        _check_hosts(scheme, hosts)
        if not _DATABASE.fullmatch(path):
            raise _wrong(
                scheme, f"must name one database after its host, in letters, digits, _, - or %..; {_ENCODE}"
            )
        user, colon, password = login.partition(":")
        parameters = tuple(_parameter(scheme, piece) for piece in query.split("&") if piece)
        secret = [(password, _decoded(scheme, password))] if password else []
        for (name, value), piece in zip(parameters, filter(None, query.split("&")), strict=True):
            if value and _SECRET_NAME.search(name):
                secret.append((piece.partition("=")[2], value))
        return cls(
            scheme,
            hosts,
            _decoded(scheme, path.removesuffix("/")),
            _decoded(scheme, user) if at else None,
            _decoded(scheme, password) if colon else None,
            parameters,
            # one that is also the user's or the database's name is on every screen anyway
            frozenset(one for raw, plain in secret for one in (raw, plain, quote(plain, safe="")))
            - {user, path, hosts},
        )

    def __str__(self) -> str:
        return f"{_shown_scheme(self.scheme)}://{self.hosts}/{self.path}"

    @property
    def hosts_and_ports(self) -> list[tuple[str, int | None]]:
        """Each host, without the brackets of an IPv6 address, and its port."""
        return [self._host_and_port(host) for host in self.hosts.split(",")]

    def _host_and_port(self, text: str) -> tuple[str, int | None]:
        host, colon, port = text.rpartition(":")
        if not colon or "]" in port:
            host, port = text, ""
        return _decoded(self.scheme, host).strip("[]"), int(port) if port else None

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """`ConfigurationError` for a parameter that is not one of *known*, with the list of these."""
        names = sorted(known)
        for name, _ in self.parameters:
            if name not in names:
                shown = f"the parameter {name!r}" if _PLAIN.fullmatch(name) else "a parameter"
                raise _wrong(self.scheme, f"has {shown} that is not known; known are {', '.join(names)}")

    def hides(self, text: str) -> bool:
        """True if none of the URL's secrets is in *text*."""
        return not any(secret in text for secret in self.secrets)

    def without_secrets(self, text: str) -> str:
        """*text* with *** in place of the URL's secrets."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def safe_cause(self, error: BaseException) -> BaseException | None:
        """*error*, if it may be the cause of another one; None if it or a cause of its own has a secret in its text."""
        seen: BaseException | None = error
        while seen is not None:
            if not self.hides(f"{seen} {seen.args!r}"):
                return None
            seen = seen.__cause__ or seen.__context__
        return error


def shown_url(url: str) -> str:
    """*url* without user, password and parameters, for logs and screens; only its scheme if it cannot be read."""
    try:
        return str(StoreUrl.of(url))
    except ConfigurationError:
        return f"{_shown_scheme(url.partition('://')[0])}://…"


def _shown_scheme(scheme: str) -> str:
    return scheme.lower() if _PLAIN.fullmatch(scheme) else "…"


def _wrong(scheme: str, problem: str) -> ConfigurationError:
    name = next((name for start, name in _PRODUCTS.items() if scheme.startswith(start)), "store's")
    return ConfigurationError(f"the {name} URL {problem}")


def _sqlite_path(rest: str) -> str:
    if (rest and not rest.startswith("/")) or "?" in rest or "#" in rest or _LIKE_A_LOGIN.search(rest):
        raise _wrong(
            "sqlite",
            "cannot be read: write sqlite:///file.db (three slashes), sqlite:////absolute/file.db, or "
            "sqlite:///:memory:, without host, login and parameters (in a file's name, %3F for ?, %23 for #, %40 for @)",
        )
    # a file's name may have a % of its own
    return unquote_to_bytes(rest.removeprefix("/")).decode("utf-8", "surrogateescape")


def _check_hosts(scheme: str, hosts: str) -> None:
    for host in hosts.split(","):
        found = _HOST.fullmatch(host)
        if found is None or (found["port"] and not 0 < int(found["port"]) < 65536):
            raise _wrong(
                scheme,
                f"has a host or port that cannot be read: a port is a number from 1 to 65535, an IPv6 address stands "
                f"in [brackets], a login ends with @; write {_FORM}; {_ENCODE}",
            )


def _parameter(scheme: str, piece: str) -> tuple[str, str]:
    name, equals, value = piece.partition("=")
    if not (name and equals):
        raise _wrong(
            scheme, "has a parameter without a value; after the ? write name=value, with & between two"
        )
    return _decoded(scheme, name), _decoded(scheme, value)


def _decoded(scheme: str, text: str) -> str:
    decoded: str | None = None
    if not _BAD_PERCENT.search(text):
        decoded = unquote_to_bytes(text).decode("utf-8", "replace")
    if decoded is None or "�" in decoded or "\0" in decoded:
        raise _wrong(scheme, f"has a % that does not begin a character in UTF-8; {_ENCODE}")
    return decoded
