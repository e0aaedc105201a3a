"""
Alerts by webhook: ``notify(scheduler, url)``, and ``verify(...)`` for whoever receives them.

A message is a POST with a JSON body, sent by a job: it is stored, retried and seen like every other. `docs/how-to/alerts.md` has its fields.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ratchet.contrib.alerting.delivery import DeliveryFailed, DeliveryRefused, without
from ratchet.contrib.alerting.messages import Message
from ratchet.contrib.alerting.notifier import MAX_RETRIES, Destination, Notifier
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import ConfigurationError, RatchetError, RetryLater
from ratchet.model.events import Event
from ratchet.scheduler import Scheduler

__all__ = ["DELIVERY", "SIGNATURE", "InvalidSignature", "notify", "verify"]

#: The header with the signature: ``t=<seconds since 1970>,v1=<hex of HMAC-SHA256 over "<t>." and the body>``.
SIGNATURE = "Ratchet-Signature"
#: The header with the id of a message, which is the same however often it is sent.
DELIVERY = "Ratchet-Delivery"
#: Where the secret is looked for if none is passed.
SECRET_VARIABLE = "RATCHET_WEBHOOK_SECRET"
#: A secret that can be guessed signs nothing.
SHORTEST_SECRET = 16
#: Bytes of an answer that are read.
MOST_READ = 16 * 1024
#: A receiver that asks for a pause gets one, but not for longer than this, in seconds.
LONGEST_PAUSE = 3600.0

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: What a client did wrong that may be right the next time: timeouts, conflicts, too early, too many.
_PASSING = (408, 409, 423, 425, 429)


def notify(
    scheduler: Scheduler,
    url: str,
    events: Iterable[type[Event]] | None = None,
    *,
    secret: str | bytes | None = None,
    name: str = "webhook",
    label: str | None = None,
    queue: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: Duration = 10,
    max_retries: int = MAX_RETRIES,
    tls: ssl.SSLContext | None = None,
) -> Notifier:
    """
    Send alerts of *scheduler* to *url* from every node that it starts from now on.

    *events*: which (None: dead letters, one message for each cause and hour); *secret*: signs each message (None: what the environment variable
    ``RATCHET_WEBHOOK_SECRET`` says, else they are not signed); *name*: of this destination, in the name of its jobs; *label*: put in
    front of every text; *queue*: of its jobs; *headers*: more of them, such as ``Authorization``. Neither *url* nor *secret*
    nor *headers* are stored.
    """
    if secret is None:
        secret = os.environ.get(SECRET_VARIABLE) or None
    patience = to_timedelta(timeout, "the timeout", zero=False)
    transport = Webhook(
        url,
        secret=None if secret is None else secret_of(secret),
        headers=headers or {},
        timeout=patience.total_seconds(),
        tls=tls,
    )
    destination = Destination.checked(
        transport,
        name=name,
        events=events,
        label=label,
        queue=queue,
        timeout=patience,
        max_retries=max_retries,
    )
    return Notifier(scheduler, destination)


class InvalidSignature(RatchetError):
    """A message was not signed with the secret, was changed on its way, or is too old."""


def verify(
    body: bytes,
    signature: str | None,
    secret: str | bytes | Sequence[str | bytes],
    *,
    tolerance: Duration = 300,
    now: float | None = None,
) -> None:
    """
    Check a message that you have received; `InvalidSignature` if it is not to be trusted.

    *body*: exactly the bytes that came; *signature*: the header ``Ratchet-Signature``; *secret*: yours, or several while you change it.
    A message older than *tolerance* is refused, so that nobody can send an old one again.
    """
    secrets = [secret] if isinstance(secret, str | bytes) else list(secret)
    if not secrets:
        raise ConfigurationError("there is no secret to check the signature with")
    signed_at, given = _parsed(signature)
    at = time.time() if now is None else now
    if abs(at - signed_at) > to_timedelta(tolerance, "the tolerance").total_seconds():
        raise InvalidSignature("the message is too old, or the clocks are too far apart")
    expected = [_mac(secret_of(one), signed_at, body) for one in secrets]
    # Every pair is compared, so that the time it takes says nothing.
    matches = [hmac.compare_digest(one, other) for one in expected for other in given]
    if not any(matches):
        raise InvalidSignature("the message was not signed with this secret, or was changed on its way")


def _parsed(signature: str | None) -> tuple[int, list[str]]:
    fields = [part.strip().partition("=") for part in (signature or "").split(",")]
    times = [value for key, _, value in fields if key == "t"]
    given = [value for key, _, value in fields if key == "v1" and value.isascii()]
    if (
        len(times) != 1
        or not times[0].isascii()
        or not times[0].isdecimal()
        or len(times[0]) > 15
        or not given
    ):
        raise InvalidSignature(f"the message has no header {SIGNATURE} of the form t=…,v1=…")
    return int(times[0]), given


def _mac(secret: bytes, signed_at: int, body: bytes) -> str:
    return hmac.new(secret, f"{signed_at}.".encode() + body, hashlib.sha256).hexdigest()


def secret_of(secret: object) -> bytes:
    """*secret* as bytes, if it is long enough to be one."""
    if not isinstance(secret, str | bytes):
        raise ConfigurationError(f"the secret of a webhook is text or bytes, not {type(secret).__name__}")
    found = secret.encode() if isinstance(secret, str) else secret
    if len(found) < SHORTEST_SECRET:
        raise ConfigurationError(
            f"the secret of a webhook has at least {SHORTEST_SECRET} characters; make one with "
            "python -c 'import secrets; print(secrets.token_hex(32))'"
        )
    return found


class Webhook:
    """Posts messages to one address. It follows no redirect, and asks no proxy."""

    def __init__(
        self,
        url: str,
        *,
        secret: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = _address(url)
        self._secret = secret
        self._headers = _checked(headers or {})
        self._timeout = timeout
        self._tls = tls

    def __repr__(self) -> str:
        return f"Webhook({self._url.scheme}://•••)"

    def send(self, message: Message) -> None:
        """Post *message*; any answer between 200 and 299 means that it was taken."""
        try:
            status, said, pause = self._post(message.id, _body(message))
        except (OSError, HTTPException, ValueError) as error:
            what = "it did not answer in time" if isinstance(error, TimeoutError) else self._hide(str(error))
            # Without its cause, whose text may have the address in it.
            raise DeliveryFailed(f"the receiver was not reached: {type(error).__name__}: {what}") from None
        if 200 <= status < 300:
            return
        text = f"the receiver answered {status}{f': {said}' if said else ''}"
        if 300 <= status < 400:
            raise DeliveryRefused(f"{text}; redirects are not followed: name the address it redirects to")
        if pause is not None and status in (429, 503):
            raise RetryLater(min(pause, LONGEST_PAUSE), reason=text)
        raise (DeliveryRefused if 400 <= status < 500 and status not in _PASSING else DeliveryFailed)(text)

    def _post(self, delivery: str, body: bytes) -> tuple[int, str, float | None]:
        """Status, the beginning of what was said, and the pause in seconds that was asked for."""
        connection = self._connection()
        try:
            connection.request("POST", self._path(), body, self._all_headers(delivery, body))
            answer = connection.getresponse()
            said = answer.read(MOST_READ).decode(errors="replace")
            return answer.status, self._hide(said), _pause(answer)
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        host = self._url.hostname or ""
        if self._url.scheme == "https":
            context = self._tls or ssl.create_default_context()
            return HTTPSConnection(host, self._url.port, timeout=self._timeout, context=context)
        return HTTPConnection(host, self._url.port, timeout=self._timeout)

    def _path(self) -> str:
        path = self._url.path or "/"
        return f"{path}?{self._url.query}" if self._url.query else path

    def _all_headers(self, delivery: str, body: bytes) -> dict[str, str]:
        found = {
            "Content-Type": "application/json",
            "User-Agent": "ratchet",
            "Accept": "*/*",
            **self._headers,
            DELIVERY: delivery,
        }
        if self._secret is not None:
            at = int(time.time())
            found[SIGNATURE] = f"t={at},v1={_mac(self._secret, at, body)}"
        return found

    def _hide(self, text: str) -> str:
        secret = None if self._secret is None else self._secret.decode(errors="replace")
        url = self._url
        parts = [part for part in url.path.split("/") if len(part) > 3]
        return without(
            [url.geturl(), url.netloc, url.hostname, url.path if len(url.path) > 1 else None, url.query,
             secret, *parts, *self._headers.values()],
            text,
        )  # fmt: skip


def _address(url: object) -> SplitResult:
    """*url*, if messages can be posted there; what is wrong with it is said without repeating it."""
    hint = "write https://hooks.example.com/services/…"
    if not isinstance(url, str):
        raise ConfigurationError(f"the URL of a webhook is text; {hint}")
    try:
        found = urlsplit(url)
        host, _ = found.hostname, found.port
    except ValueError:
        raise ConfigurationError(f"the URL of a webhook cannot be read; {hint}") from None
    if found.scheme not in ("http", "https") or not host:
        raise ConfigurationError(f"the URL of a webhook begins with https:// or http:// and a host; {hint}")
    if found.username is not None or found.password is not None:
        raise ConfigurationError(
            "the URL of a webhook has no user and password; pass headers={'Authorization': 'Basic …'}"
        )
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigurationError("the URL of a webhook has no spaces and only ASCII; percent-encode the rest")
    try:
        socket.inet_aton(host) if host.replace(".", "").isdecimal() else host.encode("idna")
    except (OSError, UnicodeError):
        raise ConfigurationError(f"the URL of a webhook has no valid host; {hint}") from None
    return found._replace(fragment="")


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise ConfigurationError("headers is a mapping from names to texts")
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ConfigurationError(f"{name!r} is not the name of an HTTP header")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise ConfigurationError(f"the header {name} has a value that is no printable ASCII text")
    return dict(headers)


def _body(message: Message) -> bytes:
    content: dict[str, Any] = {
        "text": _for_slack(message.text),
        "id": message.id,
        "event": message.event,
        "title": message.title,
        "at": message.at.isoformat(),
        "count": message.count,
        "repeated": message.repeated,
        "details": message.details,
    }
    return json.dumps(content, ensure_ascii=True).encode()


def _for_slack(text: str) -> str:
    """*text* as Slack shows it as it is: ``<!channel>`` in an error would call everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _pause(answer: HTTPResponse) -> float | None:
    """The seconds that ``Retry-After`` asks for."""
    asked = (answer.getheader("Retry-After") or "").strip()
    if asked.isascii() and asked.isdecimal() and len(asked) < 10:
        return float(asked)
    try:
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
