"""A small TCP proxy between a store and its server, which delays, falls silent, or cuts connections at a chosen moment."""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

_CHUNK = 1 << 20


class Moment(Enum):
    """When a connection is cut, relative to one request of the client."""

    BEFORE = "before the request reaches the server"
    AT = "while the server works on the request"
    AFTER = "after the server has answered, before the answer arrives"


@dataclass
class _Pair:
    """One client and its connection to the server."""

    client: socket.socket
    server: socket.socket
    muted: bool = False  # the next answer of the server is dropped, and the connection cut

    def reset(self) -> None:
        """Cut both ends at once: data on the way is lost."""
        for end in (self.client, self.server):
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # already closed
            end.close()


class Proxy:
    """
    Forwards connections to a server, and counts the requests that clients send.

    A request is what arrives from a client in one piece. The proxy does not know the protocol: a test that
    wants to cut at the commit cuts at every request, one after the other.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self.server = server
        self.latency = 0.0  # seconds, each way
        self.silent = False  # drop everything, in both directions
        self.requests = 0  # since the last arm()
        self._plan: tuple[int, Moment] | None = None
        self._lock = threading.Lock()
        self._pairs: list[_Pair] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._start(self._accept)

    def arm(self, request: int | None = None, moment: Moment = Moment.BEFORE) -> None:
        """Count from zero; cut the connection that sends the *request*-th request (from 1), at *moment*."""
        with self._lock:
            self.requests = 0
            self._plan = None if request is None else (request, moment)

    @property
    def struck(self) -> bool:
        """True once the planned cut has happened."""
        return self._plan is None

    def cut_all(self) -> None:
        """Cut every connection that is open now."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.reset()

    def close(self) -> None:
        """Stop listening and cut everything."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept()
        except OSError:
            pass  # already closed, or a system where closing is enough
        self._listener.close()
        self.cut_all()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- threads --------------------------------------------------------------------------------

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(self.server, timeout=10)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = _Pair(client, server)
            with self._lock:
                self._pairs.append(pair)
            self._start(self._forward_requests, pair)
            self._start(self._forward_answers, pair)

    def _forward_requests(self, pair: _Pair) -> None:
        try:
            while data := pair.client.recv(_CHUNK):
                moment = self._moment_of_next_request()
                if moment is Moment.BEFORE:
                    break
                pair.muted = pair.muted or moment is Moment.AFTER
                self._pass_on(data, pair.server)
                if moment is Moment.AT:
                    break
        except OSError:
            pass  # either end is gone
        pair.reset()

    def _forward_answers(self, pair: _Pair) -> None:
        try:
            while data := pair.server.recv(_CHUNK):
                if pair.muted:
                    break
                self._pass_on(data, pair.client)
        except OSError:
            pass  # either end is gone
        pair.reset()

    def _moment_of_next_request(self) -> Moment | None:
        with self._lock:
            self.requests += 1
            if self._plan is None or self.requests != self._plan[0]:
                return None
            moment, self._plan = self._plan[1], None
            return moment

    def _pass_on(self, data: bytes, to: socket.socket) -> None:
        if self.latency:
            time.sleep(self.latency)
        if not self.silent:
            to.sendall(data)
