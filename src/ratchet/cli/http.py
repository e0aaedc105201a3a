"""A small HTTP server for probes and metrics: a few addresses that answer GET, and nothing else."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from ratchet.cli.exit_codes import Refused

logger = logging.getLogger("ratchet.http")

#: Seconds that a client may take for its request.
PATIENCE = 10.0
TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """What a page says."""

    body: str
    status: int = 200
    content_type: str = TEXT


Page = Callable[[], Answer]


class Address(NamedTuple):
    """Where to listen; port 0: a free one."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str, option: str = "--http") -> Address:
        """``127.0.0.1:9464``, ``[::1]:9464``, or only a port: then loopback, where no stranger can reach it."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
        if not port.isdecimal() or not 0 <= int(port) < 65536 or not host:
            raise Refused(f"{option} {text!r} is no address; write 127.0.0.1:9464, or only a port")
        return cls(host, int(port))


class Pages:
    """Serves pages on a thread of its own, from `start` to `close`."""

    def __init__(self, address: Address, pages: Mapping[str, Page]) -> None:
        self._address = address
        self._pages = dict(pages)
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> Address:
        """Listen; where, with the port that was found."""
        host, port = self._address
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = kind((host, port), _handler(self._pages))
        except OSError as error:
            raise Refused(f"--http: cannot listen on {host}:{port}: {error.strerror or error}") from error
        threading.Thread(target=self._server.serve_forever, name="ratchet-http", daemon=True).start()
        return Address(host, self._server.server_address[1])

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Server6(_Server):
    address_family = socket.AF_INET6


def _handler(pages: Mapping[str, Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "ratchet"
        sys_version = ""
        timeout = PATIENCE

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                answer = Answer(f"there is {', '.join(sorted(pages))}\n", 404)
            else:
                try:
                    answer = page()
                except Exception:
                    logger.exception("the page %s failed", self.path.partition("?")[0])
                    answer = Answer("this page failed; the log says why\n", 500)
            body = answer.body.encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            logger.debug("%s %s", self.address_string(), format % args)

    return Handler
