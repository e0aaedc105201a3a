from __future__ import annotations

from urllib.parse import urlsplit

import redis

from tests.services.programs import find_program, install_packages
from tests.services.server import Server, with_database

COUNTER = "ratchet:test:databases"


class Redis(Server):
    """
    A Redis server.

    Its databases are numbers and separate keys only: messages go to every subscriber of a channel,
    whatever the database, so tests need channel names of their own.
    """

    name = "Redis"
    variable = "RATCHET_TEST_REDIS_URL"
    users = ("redis", "nobody")

    @classmethod
    def install(cls) -> None:
        if find_program("redis-server") is None:
            install_packages(cls.name, cls.variable, "redis-server")

    def command(self) -> list[str]:
        settings = ["--bind", "127.0.0.1", "--dir", str(self.directory), "--databases", "1024"]
        # Every write goes to the disk, so that what was acknowledged survives kill().
        durability = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        return [
            find_program("redis-server") or "redis-server",
            "--port",
            str(self.port),
            *settings,
            *durability,
        ]

    def private_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def create_database(self) -> str:
        with redis.Redis.from_url(self.url) as client:
            available = int(client.config_get("databases")["databases"])
            number = int(client.incr(COUNTER)) % (available - 1) + 1
        url = with_database(self.url, str(number))
        self.drop_database(url)  # the numbers come round again
        return url

    def drop_database(self, url: str) -> None:
        if urlsplit(url).path in ("", "/", "/0"):
            raise ValueError("database 0 was not made by create_database(); it is not flushed")
        with redis.Redis.from_url(url) as client:
            client.flushdb()
