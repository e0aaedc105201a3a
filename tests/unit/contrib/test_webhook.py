"""Webhooks: the signature, what is refused, and what a receiver can do to the sender."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet import (
    ConfigurationError,
    InvalidJob,
    JobDeadLettered,
    JobEvent,
    JobFailed,
    RatchetError,
    Scheduler,
)
from ratchet.contrib import webhook
from ratchet.contrib.alerting.delivery import DeliveryFailed, DeliveryRefused
from ratchet.contrib.alerting.messages import Message
from ratchet.contrib.webhook import InvalidSignature, Webhook, verify
from ratchet.testing import isolated, manual_scheduler
from tests.support.certificates import Authority
from tests.support.receivers import Reply, WebhookReceiver
from tests.support.waiting import until

SECRET = "correct horse battery staple"
MESSAGE = Message(
    id="one",
    event="JobDeadLettered",
    title="shop:charge fails: <!channel> & co",
    lines=("1 job",),
    at=datetime.now(UTC),
)


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as made:
        yield made


class TestSignature:
    @pytest.fixture
    def signed(self, receiver: WebhookReceiver) -> tuple[bytes, str]:
        """A message as it came, with its header."""
        Webhook(receiver.url(), secret=SECRET.encode()).send(MESSAGE)
        (request,) = receiver.received
        return request.body, request.headers[webhook.SIGNATURE]

    def test_what_was_sent_is_trusted(self, signed: tuple[bytes, str]) -> None:
        """With the secret, or with one of two while it is being changed."""
        verify(*signed, SECRET)
        verify(*signed, SECRET.encode())
        verify(*signed, ["another secret of some length", SECRET])

    def test_what_was_changed_is_not(self, signed: tuple[bytes, str]) -> None:
        """Another body, another time, another secret, another version, no signature at all."""
        body, header = signed
        stamp, _, mac = header.removeprefix("t=").partition(",v1=")
        forged = [
            (body + b" ", header, SECRET),
            (body, f"t={int(stamp) + 1},v1={mac}", SECRET),
            (body, header, "another secret of some length"),
            (body, f"t={stamp},v0={mac}", SECRET),
            (body, f"t={stamp},v1=", SECRET),
            (body, f"t={stamp},t={stamp},v1={mac}", SECRET),
            (body, f"v1={mac}", SECRET),
            (body, f"t=٣,v1={mac}", SECRET),
            (body, f"t={stamp},v1={mac[:-1]}ä", SECRET),
            (body, "nonsense", SECRET),
            (body, "", SECRET),
            (body, None, SECRET),
        ]
        for one in forged:
            with pytest.raises(InvalidSignature):
                verify(*one)

    def test_an_old_message_cannot_be_sent_again(self, signed: tuple[bytes, str]) -> None:
        """It is refused after five minutes, or after what the receiver says; so is one from the future."""
        for seconds in (-301, 302):
            with pytest.raises(InvalidSignature, match="too old"):
                verify(*signed, SECRET, now=time.time() + seconds)
        verify(*signed, SECRET, now=time.time() + 3000, tolerance=timedelta(hours=1))

    def test_the_formula_is_the_documented_one(self, signed: tuple[bytes, str]) -> None:
        """HMAC-SHA256 over the time, a dot and the body: whoever has no Python can check it too."""
        import hashlib
        import hmac

        body, header = signed
        stamp, _, mac = header.removeprefix("t=").partition(",v1=")
        assert hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest() == mac

    def test_without_a_secret_nothing_is_signed(self, receiver: WebhookReceiver) -> None:
        """Slack does not check signatures; the address is its secret."""
        Webhook(receiver.url()).send(MESSAGE)
        assert webhook.SIGNATURE not in receiver.received[0].headers

    def test_the_secret_may_come_from_the_environment(
        self, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`RATCHET_WEBHOOK_SECRET` is used where none is passed."""
        monkeypatch.setenv(webhook.SECRET_VARIABLE, SECRET)
        notifier = webhook.notify(manual_scheduler(), receiver.url())
        notifier.destination.transport.send(MESSAGE)
        verify(receiver.received[0].body, receiver.received[0].headers[webhook.SIGNATURE], SECRET)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        "url",
        [None, 7, "", "token.example.com/", "ftp://token.example.com", "file:///etc/token", "https://", "https://a:token@example.com/",
         "https://example.com:token/", "https://example.com/token b", "https://example.com/tokenä", "https://example.com/\r\nX: token",
         "https://[::1", "https://1.2.3.4.5/token"],
    )  # fmt: skip
    def test_an_address_that_is_none(self, url: str) -> None:
        """Refused where it is given, and not repeated: it may hold a token."""
        with pytest.raises(ConfigurationError) as refusal:
            webhook.notify(manual_scheduler(), url)
        assert "token" not in str(refusal.value)

    @pytest.mark.parametrize("secret", ["short", b"", 7])
    def test_a_secret_that_is_none(self, secret: str) -> None:
        """Too short, or no text."""
        with pytest.raises(ConfigurationError, match="secret"):
            webhook.notify(manual_scheduler(), "https://example.com", secret=secret)
        with pytest.raises(ConfigurationError):
            verify(b"", "t=1,v1=aa", [], now=1)

    @pytest.mark.parametrize(
        "headers", [{"X\r\nY": "a"}, {"X": "a\r\nY: b"}, {"X Y": "a"}, {"X": "ä"}, {"X": 1}, {1: "x"}, "X: y"]
    )
    def test_headers_that_would_be_others(self, headers: dict[str, str]) -> None:
        """No header can be smuggled in."""
        with pytest.raises(ConfigurationError):
            webhook.notify(manual_scheduler(), "https://example.com", headers=headers)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("events", [int]), ("events", []), ("events", JobFailed), ("events", "JobFailed"), ("name", "On Call"),
         ("name", ""), ("queue", "a,b"), ("timeout", 0), ("timeout", "10"), ("max_retries", -1), ("label", "")],
    )  # fmt: skip
    def test_other_nonsense(self, name: str, value: object) -> None:
        """Each has a message of ours."""
        with pytest.raises((InvalidJob, ConfigurationError)):
            webhook.notify(manual_scheduler(), "https://example.com", **{name: value})  # type: ignore[arg-type]

    def test_the_same_name_twice(self) -> None:
        """Two destinations are told apart by name."""
        scheduler = manual_scheduler()
        webhook.notify(scheduler, "https://example.com/a")
        with pytest.raises(ConfigurationError, match="pass name="):
            webhook.notify(scheduler, "https://example.com/b")
        webhook.notify(scheduler, "https://example.com/b", name="other")


class TestSending:
    def test_the_body(self, receiver: WebhookReceiver) -> None:
        """Slack shows the text as it is: nothing in an error calls the whole channel."""
        Webhook(receiver.url("/hook?room=7#part")).send(MESSAGE)
        (request,) = receiver.received
        assert request.path == "/hook?room=7"
        assert request.headers["Content-Type"] == "application/json"
        assert request.document["text"] == "shop:charge fails: &lt;!channel&gt; &amp; co\n1 job"
        assert request.document["title"] == MESSAGE.title

    def test_a_receiver_that_never_answers(self) -> None:
        """The timeout ends it."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
            with pytest.raises(DeliveryFailed, match="did not answer in time"):
                Webhook(url, timeout=0.2).send(MESSAGE)

    def test_an_endless_answer_is_not_read(self) -> None:
        """Only its beginning is; the connection is closed then."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            ended = threading.Event()

            def pour() -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    try:
                        connection.sendall(b"HTTP/1.1 500 no\r\n\r\n")
                        while True:
                            connection.sendall(b"x" * 65536)
                    except OSError:
                        ended.set()

            threading.Thread(target=pour, daemon=True).start()
            with pytest.raises(DeliveryFailed) as failure:
                Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=10).send(MESSAGE)
            assert len(str(failure.value)) < 300
            assert ended.wait(20)

    def test_an_answer_that_is_no_http(self) -> None:
        """Garbage is a failure like another."""
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer() -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"\x00\xff garbage\r\n\r\n")

            threading.Thread(target=answer, daemon=True).start()
            with pytest.raises(DeliveryFailed):
                Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/").send(MESSAGE)

    def test_certificates_are_checked(self, tmp_path: Path) -> None:
        """A receiver whose certificate nobody vouches for gets nothing."""
        authority = Authority(tmp_path, "ours")
        certificate, key = authority.issue("localhost")
        (tmp_path / "server.pem").write_bytes(certificate + key)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(tmp_path / "server.pem")
        with WebhookReceiver().with_tls(server) as receiver:
            url = f"https://localhost:{receiver.port}/token"
            with pytest.raises(DeliveryFailed, match="CERTIFICATE_VERIFY_FAILED") as failure:
                Webhook(url).send(MESSAGE)
            assert "localhost" not in str(failure.value)
            assert receiver.received == []
            trusted = ssl.create_default_context(cafile=str(authority.path))
            Webhook(url, tls=trusted).send(MESSAGE)
            assert len(receiver.received) == 1

    def test_refusals_are_told_apart(self) -> None:
        """What a later try may change is not the same as what it cannot."""
        answers = {400: DeliveryRefused, 401: DeliveryRefused, 410: DeliveryRefused, 301: DeliveryRefused,
                   408: DeliveryFailed, 429: DeliveryFailed, 500: DeliveryFailed, 503: DeliveryFailed}  # fmt: skip
        for status, kind in answers.items():
            with WebhookReceiver(lambda number, status=status: Reply(status)) as receiver:  # type: ignore[misc]
                with pytest.raises(DeliveryFailed) as failure:
                    Webhook(receiver.url()).send(MESSAGE)
                assert type(failure.value) is kind, status

    def test_nothing_shows_the_address(self) -> None:
        """Neither the notifier nor its parts, when they are printed."""
        notifier = webhook.notify(manual_scheduler(), "https://hooks.example.com/token", secret=SECRET)
        shown = repr(notifier) + repr(notifier.destination) + repr(notifier.destination.transport)
        assert not [one for one in ("hooks", "token", SECRET) if one in shown]


class TestAsNode:
    def test_a_node_tells_by_itself(self, tmp_path: Path, receiver: WebhookReceiver) -> None:
        """Whatever happened before it started, and what fails in it; stopping tells what was only counted."""
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
        with Scheduler(url, allow=[__name__]) as mute:
            mute.enqueue_now(fail).wait(timeout=30)
        mute.close()
        scheduler = Scheduler(url, allow=[__name__])
        webhook.notify(scheduler, receiver.url(), [JobEvent])
        with scheduler:
            until(lambda: len(receiver.received) == 1, 30, "the alert from before was not told")
            for _ in range(5):
                scheduler.enqueue_now(fail_otherwise).wait(timeout=30)
            until(
                lambda: {"JobSubmitted", "JobStarted", "JobFailed", "JobDeadLettered"} <= events(receiver),
                30,
                f"{events(receiver)}",
            )
        before = len(receiver.received)
        with scheduler:  # the counts were stored by the stop, and are sent now
            until(
                lambda: any(one.document["repeated"] for one in receiver.received[before:]), 30, "no counts"
            )
        scheduler.close()
        titles = [one.document["title"] for one in receiver.received]
        assert len(titles) == len(set(titles))

    def test_a_test_that_isolates_the_scheduler_sends_nothing(self, receiver: WebhookReceiver) -> None:
        """Its jobs fail in memory, and nobody is called."""
        scheduler = Scheduler("sqlite:///never-made.db", allow=[__name__])
        webhook.notify(scheduler, receiver.url())
        with isolated(scheduler) as test:
            scheduler.enqueue_now(fail)
            test.drain()
            assert len(scheduler.dead_letters.find()) == 1
        assert receiver.received == []

    def test_a_store_that_is_away_loses_no_event(
        self, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The message waits and is stored the next time."""
        scheduler = manual_scheduler()
        notifier = webhook.notify(scheduler, receiver.url(), [JobFailed])
        builder = notifier._builder
        monkeypatch.setattr(notifier, "_builder", _away)
        scheduler.enqueue_now(fail)
        scheduler.drain()
        monkeypatch.setattr(notifier, "_builder", builder)
        notifier.run_once()
        scheduler.drain()
        assert events(receiver) == {"JobFailed"}


def _away(*_: object) -> None:
    raise RatchetError("the store is away")


def fail() -> None:
    raise ValueError("no")


def fail_otherwise() -> None:
    raise KeyError("no")


def events(receiver: WebhookReceiver) -> set[str]:
    return {one.document["event"] for one in receiver.received}


def test_dead_letters_only_by_default() -> None:
    """What people have to look at, and no more."""
    assert webhook.notify(manual_scheduler(), "https://example.com").destination.events == (JobDeadLettered,)
