from __future__ import annotations

import redis

from tests.services.redis import Redis


def test_gives_each_test_an_empty_database(redis_url: str, redis_server: Redis) -> None:
    """Keys of one test are not seen by the next."""
    other = redis_server.create_database()
    assert other != redis_url
    with redis.Redis.from_url(redis_url) as one, redis.Redis.from_url(other) as two:
        one.set("key", "value")
        assert two.get("key") is None
    redis_server.drop_database(other)


def test_keeps_its_data_through_restart_and_kill() -> None:
    """What was acknowledged is there after an orderly restart, and after SIGKILL."""
    with Redis() as server:
        with redis.Redis.from_url(server.create_database()) as client:
            client.set("answer", 42)
            for interrupt in (server.restart, server.kill):
                interrupt()
                server.start()
                assert client.get("answer") == b"42"
