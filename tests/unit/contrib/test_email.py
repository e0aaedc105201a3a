"""Alerts by e-mail, through a real mail server on loopback."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet import ConfigurationError, JobFilter, ManualClock
from ratchet.contrib import email
from ratchet.contrib.alerting.delivery import DeliveryFailed, DeliveryRefused
from ratchet.contrib.alerting.messages import Message
from ratchet.contrib.alerting.notifier import PREFIX
from ratchet.contrib.email import Mail
from ratchet.testing import manual_scheduler
from tests.support.certificates import Authority
from tests.support.receivers import MailServer

MESSAGE = Message(id="one", event="JobFailed", title="it fails", lines=("a line",), at=datetime.now(UTC))
PEOPLE = {"sender": "Ratchet <jobs@example.com>", "recipients": ["ops@example.com", "Ann <ann@example.com>"]}


def charge(text: str) -> None:
    raise ValueError(text)


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What the server shows, and what a client that trusts it has."""
    authority = Authority(tmp_path, "ours")
    certificate, key = authority.issue("localhost")
    (tmp_path / "server.pem").write_bytes(certificate + key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem")
    return server, ssl.create_default_context(cafile=str(authority.path))


def test_one_mail_for_a_cause() -> None:
    """With subject, text and every recipient; what came after it is one more when the window ends."""
    clock = ManualClock()
    scheduler = manual_scheduler(clock=clock)
    with MailServer() as server:
        email.notify(scheduler, "127.0.0.1", port=server.port, security="none", label="shop", **PEOPLE)
        for number in range(30):
            scheduler.enqueue_now(charge, f"order {number}")
        scheduler.drain()
        ((recipients, mail),) = server.mails
        assert recipients == ["ops@example.com", "ann@example.com"]
        assert mail["From"] == "Ratchet <jobs@example.com>"
        assert mail["Subject"] == f"[shop] {__name__}:charge fails: ValueError: order 0"
        assert "ratchet dlq summary" in mail.get_content()
        assert mail["Auto-Submitted"] == "auto-generated"
        clock.advance(timedelta(hours=1, minutes=2))
        scheduler.drain()
        assert len(server.mails) == 2
        assert "29 jobs more" in str(server.mails[1][1]["Subject"])
        assert server.mails[1][1]["Message-ID"] != mail["Message-ID"]


@pytest.mark.parametrize(
    "text",
    ["a\r\nBcc: eve@example.com", "a\nBcc: eve@example.com\n\nbody", "a\rBcc: eve@example.com", "\x00\x0b\x85\u2028Bcc: x@y.z",
     "=?utf-8?q?=0ABcc:_eve@example.com?=", "ä" * 5000, "\ud800", "\r\n.\r\nMAIL FROM:<eve@example.com>\r\n"],
)  # fmt: skip
def test_no_header_can_be_smuggled_in(text: str) -> None:
    """Whatever the text of an error is, the mail has the headers, the recipients and the number that we gave it."""
    scheduler = manual_scheduler()
    with MailServer() as server:
        email.notify(scheduler, "127.0.0.1", port=server.port, security="none", **PEOPLE)
        Mail("127.0.0.1", port=server.port, security="none", **PEOPLE).send(
            Message(id="one", event="JobFailed", title=text, lines=(text,), at=datetime.now(UTC))
        )
    ((recipients, mail),) = server.mails
    assert recipients == ["ops@example.com", "ann@example.com"]
    head = server.raw[0].partition(b"\r\n\r\n")[0]
    names = [line.partition(b":")[0] for line in head.split(b"\r\n") if line[:1] not in b" \t"]
    expected = [b"Subject", b"From", b"To", b"Date", b"Message-ID", b"Auto-Submitted", b"X-Ratchet-Event"]
    assert [
        name for name in names if name not in (b"Content-Type", b"Content-Transfer-Encoding", b"MIME-Version")
    ] == expected
    assert mail["Bcc"] is None


def test_login_over_starttls(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """The password goes to a server whose certificate is good, and to no other."""
    server_side, client_side = contexts
    with MailServer(login=("ann", "a password"), starttls=server_side) as server:
        given = {"port": server.port, "username": "ann", "password": "a password", **PEOPLE}
        Mail("localhost", tls=client_side, **given).send(MESSAGE)
        assert (server.logins, len(server.mails)) == ([("ann", "a password")], 1)
        with pytest.raises(DeliveryFailed, match="CERTIFICATE_VERIFY_FAILED") as failure:
            Mail("localhost", **given).send(MESSAGE)
        assert len(server.logins) == 1
        assert "localhost" not in str(failure.value)
        with pytest.raises(DeliveryRefused, match="535") as refusal:
            Mail("localhost", tls=client_side, **{**given, "password": "another one"}).send(MESSAGE)
        assert "another one" not in str(refusal.value)


def test_ssl_from_the_start(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """security='ssl' speaks TLS at once."""
    server_side, client_side = contexts
    with MailServer(tls=server_side) as server:
        Mail("localhost", port=server.port, security="ssl", tls=client_side, **PEOPLE).send(MESSAGE)
        assert len(server.mails) == 1


def test_a_server_without_starttls_gets_nothing() -> None:
    """A mail is not sent in clear because the server cannot do better."""
    with MailServer() as server:
        with pytest.raises(DeliveryRefused, match="STARTTLS"):
            Mail("127.0.0.1", port=server.port, **PEOPLE).send(MESSAGE)
        assert server.mails == []


def test_a_server_that_is_busy_is_asked_again() -> None:
    """4xx means later, 5xx means never; nothing secret is in what is stored."""
    clock = ManualClock()
    scheduler = manual_scheduler(clock=clock)
    with MailServer(refuse=lambda number: "451 come back, ops@example.com" if number < 3 else None) as server:
        email.notify(scheduler, "127.0.0.1", port=server.port, security="none", **PEOPLE)
        scheduler.enqueue_now(charge, "no")
        for _ in range(4):
            scheduler.drain()
            clock.advance(timedelta(minutes=1))
        assert len(server.mails) == 1
    with MailServer(refuse=lambda number: "554 no, 127.0.0.1") as server:
        email.notify(
            scheduler, "127.0.0.1", name="other", port=server.port, security="none", **PEOPLE
        ).run_once()
        scheduler.drain()
    (letter,) = scheduler.dead_letters.find(JobFilter(targets=[f"{PREFIX}other"]))
    assert "554" in str(letter.error)
    stored = "".join(
        repr(job) + repr(scheduler.jobs.executions(job.id)) for job in scheduler.jobs.find(limit=50)
    )
    assert not [one for one in ("127.0.0.1", "example.com") if one in stored]


def test_a_server_that_is_away() -> None:
    """The failure says so, without the name of the server."""
    with MailServer() as server:
        port = server.port
    with pytest.raises(DeliveryFailed, match="not reached: ConnectionRefusedError"):
        Mail("127.0.0.1", port=port, security="none", **PEOPLE).send(MESSAGE)


@pytest.mark.parametrize(
    "given",
    [
        {"host": ""}, {"host": "smtp example"}, {"host": None}, {"host": "a\r\nb"},
        {"port": 0}, {"port": 70000}, {"port": True}, {"port": "25"},
        {"security": "tls"}, {"security": None},
        {"sender": "nobody"}, {"sender": "a@b@c"}, {"sender": "a@b\r\nBcc: c@d"}, {"sender": None}, {"sender": "a b@c d"},
        {"recipients": []}, {"recipients": "ops@example.com"}, {"recipients": ["x"]}, {"recipients": None},
        {"recipients": ["a@b.c\nBcc: d@e.f"]}, {"recipients": ["a@b.c"] * 101},
        {"username": "ann"}, {"password": "secret"},
        {"username": "ann", "password": "secret", "security": "none"},
    ],
)  # fmt: skip
def test_nonsense_is_refused_where_it_is_given(given: dict[str, object]) -> None:
    """Each has a message of ours, which repeats no password."""
    with pytest.raises(ConfigurationError) as refusal:
        email.notify(manual_scheduler(), **{"host": "smtp.example.com", **PEOPLE, **given})  # type: ignore[arg-type]
    assert "secret" not in str(refusal.value)
