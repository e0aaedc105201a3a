"""
The dashboard under WSGI: each request runs on an event loop of its own thread.

Hints cannot be streamed there without holding a thread of the server for each browser, so pages poll.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from ratchet.dashboard.app import LARGEST_FORM, Dashboard

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


class WsgiDashboard:
    """A `Dashboard` as a WSGI application."""

    def __init__(self, dashboard: Dashboard) -> None:
        #: The application behind it.
        self.dashboard = dashboard
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._made_in = 0

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        scope, body = scope_of(environ), _body(environ)
        answer = _Answer(body)
        future = asyncio.run_coroutine_threadsafe(
            self.dashboard(scope, answer.receive, answer.send), self._running_loop()
        )
        future.result()
        status = f"{answer.status} {HTTPStatus(answer.status).phrase}"
        start_response(status, answer.headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [bytes(answer.body)]

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Made at the first request, and again in a forked worker: threads do not come along."""
        with self._lock:
            if self._loop is None or self._made_in != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._made_in = os.getpid()
                threading.Thread(
                    target=_run, args=(self._loop,), name="ratchet-dashboard-loop", daemon=True
                ).start()
            return self._loop

    def close(self) -> None:
        """End the loop; the next request makes another."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._made_in == os.getpid():
            loop.call_soon_threadsafe(loop.stop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


class _Answer:
    """The two channels of ASGI for one request that is there whole."""

    def __init__(self, body: bytes) -> None:
        self._request = [{"type": "http.request", "body": body, "more_body": False}]
        self.status = 500
        self.headers: list[tuple[str, str]] = []
        self.body = bytearray()

    async def receive(self) -> Any:
        return self._request.pop() if self._request else {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]
            ]
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")


def scope_of(environ: Environ) -> dict[str, Any]:
    """The request as ASGI describes it; ``wsgi.environ`` is what the server gave."""
    root = environ.get("SCRIPT_NAME", "").encode("latin-1").decode(errors="replace").rstrip("/")
    path = environ.get("PATH_INFO", "").encode("latin-1").decode(errors="replace")
    headers = [
        (name[5:].replace("_", "-").lower().encode("latin-1"), str(value).encode("latin-1", "replace"))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    headers += [
        (name.replace("_", "-").lower().encode("latin-1"), str(environ[name]).encode("latin-1"))
        for name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        if environ.get(name)
    ]
    client = environ.get("REMOTE_ADDR")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": environ["REQUEST_METHOD"].upper(),
        "scheme": environ.get("wsgi.url_scheme", "http"),
        "path": f"{root}{path}",
        "raw_path": quote(f"{root}{path}").encode(),
        "root_path": root,
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "headers": headers,
        "client": (client, int(environ.get("REMOTE_PORT") or 0)) if client else None,
        "server": (environ.get("SERVER_NAME", ""), int(environ.get("SERVER_PORT") or 0)),
        "wsgi.environ": environ,
    }


def _body(environ: Environ) -> bytes:
    length = environ.get("CONTENT_LENGTH") or "0"
    wanted = min(int(length), LARGEST_FORM + 1) if length.isdecimal() else 0
    found: bytes = environ["wsgi.input"].read(wanted) if wanted else b""
    return found
