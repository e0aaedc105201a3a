"""Receivers of alerts, as real servers on loopback: one for webhooks, one for mail."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword


class Received(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The body, read as JSON."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class Reply(NamedTuple):
    """What a receiver answers."""

    status: int = 200
    body: bytes = b"ok"
    headers: tuple[tuple[str, str], ...] = ()


class WebhookReceiver:
    """Takes every POST and keeps it; `answer` says what it replies to the n-th request, from 1."""

    def __init__(self, answer: Callable[[int], Reply] = lambda number: Reply()) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                reply = receiver._take(Received(self.path, dict(self.headers.items()), body))
                self.send_response(reply.status)
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *_: object) -> None:
                """Tests do not want to read this."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.scheme = "http"

    def with_tls(self, context: ssl.SSLContext) -> Self:
        """The same, over TLS."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.scheme = "https"
        return self

    def _take(self, request: Received) -> Reply:
        with self._lock:
            self.received.append(request)
            number = len(self.received)
        return self.answer(number)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str = "/services/T0/B0/xyzzy-token") -> str:
        """Where to post."""
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class MailServer:
    """A mail server; the mails it has taken, with the addresses they were for. *login*: who may send."""

    def __init__(
        self,
        *,
        login: tuple[str, str] | None = None,
        starttls: ssl.SSLContext | None = None,
        tls: ssl.SSLContext | None = None,
        refuse: Callable[[int], str | None] = lambda number: None,
    ) -> None:
        self.mails: list[tuple[list[str], EmailMessage]] = []
        self.raw: list[bytes] = []
        self.logins: list[tuple[str, str]] = []
        self._login = login
        self._refuse = refuse
        self._tries = 0
        options: dict[str, Any] = {}
        if login is not None:
            options |= {
                "authenticator": self._authenticate,
                "auth_required": True,
                "auth_require_tls": starttls is not None,
            }
        if starttls is not None:
            options |= {"tls_context": starttls, "require_starttls": True}
        if tls is not None:
            options["ssl_context"] = tls
        # Port 0 does not work there: it connects to the port it was told.
        self._controller = Controller(self, hostname="127.0.0.1", port=_free_port(), **options)

    def _authenticate(self, server: object, session: object, envelope: object, how: str, given: Any) -> Any:
        assert isinstance(given, LoginPassword)
        self.logins.append((given.login.decode(), given.password.decode()))
        return AuthResult(success=self.logins[-1] == self._login, handled=False)

    async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:
        self._tries += 1
        refusal = self._refuse(self._tries)
        if refusal is not None:
            return refusal
        self.raw.append(envelope.original_content)
        mail = message_from_bytes(envelope.original_content, policy=default)
        assert isinstance(mail, EmailMessage)
        self.mails.append((list(envelope.rcpt_tos), mail))
        return "250 taken"

    @property
    def port(self) -> int:
        return int(self._controller.port)

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
