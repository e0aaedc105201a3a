"""
Dramatiq on Redis with its defaults: `dramatiq app --processes 1 --threads 10`.

Settings: advanced.rst of its docs names no setting for workers that die; the heartbeat timeout of the Redis broker is the default, 60 s.
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
