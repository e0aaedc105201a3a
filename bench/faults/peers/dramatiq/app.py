"""
Dramatiq on Redis with its defaults: `dramatiq app --processes 1 --threads 10`.

Settings: https://redis.io/docs/latest/integrate/dramatiq/; heartbeat timeout: default.
"""

import os
import sys

import body
import dramatiq
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["FAULTS_URL"]))


@dramatiq.actor
def work(name):
    """One job."""
    body.run(name)


if __name__ == "__main__":
    import app

    for name in sys.argv[2:]:
        app.work.send(name)
