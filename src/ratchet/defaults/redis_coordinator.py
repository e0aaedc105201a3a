"""Wakeups through Redis, for stores that cannot wake processes themselves; needs the extra ``redis``."""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ratchet.model.errors import ConfigurationError, MissingDriver
from ratchet.spi.broadcast import BroadcastCoordinator

if TYPE_CHECKING:
    from redis import Redis
    from redis.client import PubSub

CHECK_INTERVAL = 15.0  # seconds between two pings
ANSWER_TIMEOUT = 5.0  # seconds that anything may take
SLICE = 0.25  # seconds of one wait, and so until `stop` is noticed


class RedisCoordinator(BroadcastCoordinator):
    """
    Wakes all processes that use the same Redis and the same *channel*.

    A channel is not part of a Redis database, so its default name has the number of the database in
    it: installations that share a server need different numbers, or channels of their own.
    """

    def __init__(
        self, url: str, *, channel: str | None = None, check_interval: float = CHECK_INTERVAL
    ) -> None:
        super().__init__(RedisMedium(url, channel, check_interval))


class RedisMedium:
    """PUBLISH and SUBSCRIBE on one channel."""

    def __init__(self, url: str, channel: str | None, check_interval: float) -> None:
        if find_spec("redis") is None:
            raise MissingDriver(
                "the Redis coordinator needs redis-py, which is not installed: pip install 'ratchet-jobs[redis]'"
            )
        self._url = url
        self._check_interval = check_interval
        self._token = uuid4().hex
        client = self._client()
        number = client.connection_pool.connection_kwargs.get("db") or 0
        self._channel = channel if channel is not None else f"ratchet:{number}:wakeups"
        client.close()

    @property
    def _name(self) -> bytes:
        # Says who has sent a message: this process ignores its own, but not those of a forked child.
        return f"{self._token}:{os.getpid()}".encode()

    def sender(self) -> RedisSender:
        """A connection to publish on."""
        return RedisSender(self._client(), self._channel, self._name)

    def receiver(self) -> RedisReceiver:
        """A connection that has subscribed."""
        client = self._client()
        try:
            return RedisReceiver(client, self._channel, self._name, self._check_interval)
        except BaseException:
            client.close()
            raise

    def _client(self) -> Redis:
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        try:
            return Redis.from_url(
                self._url,
                socket_connect_timeout=3.0,
                socket_timeout=ANSWER_TIMEOUT,
                socket_keepalive=True,
                # a connection that reconnects silently would hide what was missed in between
                retry=Retry(NoBackoff(), 0),
                health_check_interval=0,
                decode_responses=False,
            )
        except ValueError:
            # without its message, which may quote a part of the password
            raise ConfigurationError(
                "the Redis URL cannot be read; it has the form redis://user:password@host:6379/0, "
                "with rediss:// for TLS and unix:// for a socket"
            ) from None


class RedisSender:
    """Publishes."""

    def __init__(self, client: Redis, channel: str, name: bytes) -> None:
        self._client = client
        self._channel = channel
        self._name = name

    def send(self) -> None:
        """One message, in one round trip."""
        self._client.publish(self._channel, self._name)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class RedisReceiver:
    """Waits for messages, and pings now and then: a connection may end unnoticed."""

    def __init__(self, client: Redis, channel: str, name: bytes, check_interval: float) -> None:
        self._client = client
        self._name = name
        self._check_interval = check_interval
        self._pubsub: PubSub = client.pubsub()  # type: ignore[no-untyped-call]  # redis-py has no annotation here
        self._check_at = time.monotonic() + check_interval
        self._answer_by: float | None = None
        self._pubsub.subscribe(channel)
        self._confirm()

    def wait(self) -> bool:
        """True if another process has sent something."""
        heard = False
        message = self._pubsub.get_message(timeout=SLICE)
        while message is not None:
            heard = self._is_news(message) or heard
            message = self._pubsub.get_message(timeout=0)
        self._check(time.monotonic())
        return heard

    def interrupt(self) -> None:
        """Do nothing: a wait is short."""

    def close(self) -> None:
        """Close the connection, and with it the subscription."""
        self._pubsub.close()
        self._client.close()

    def _confirm(self) -> None:
        # messages sent before the server has confirmed may be missed, so it is not "connected" earlier
        confirmed = self._pubsub.get_message(timeout=ANSWER_TIMEOUT)
        if confirmed is None or confirmed["type"] != "subscribe":
            raise TimeoutError("Redis has not confirmed the subscription")

    def _is_news(self, message: dict[str, Any]) -> bool:
        if message["type"] == "pong":
            self._answer_by = None
        return bool(message["type"] == "message" and message["data"] != self._name)

    def _check(self, now: float) -> None:
        if self._answer_by is not None and now >= self._answer_by:
            raise TimeoutError("Redis does not answer")
        if now >= self._check_at and self._answer_by is None:
            self._check_at = now + self._check_interval
            self._answer_by = now + ANSWER_TIMEOUT
            self._pubsub.ping()
