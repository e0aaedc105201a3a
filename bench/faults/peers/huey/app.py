"""
Huey on Redis with its defaults: `huey_consumer app.huey -w 10`.

Settings: defaults. SIGTERM stops at once, SIGINT waits (release notes of 1.4.0).
"""

import os
import sys

import body
from huey import RedisHuey

huey = RedisHuey("faults", url=os.environ["FAULTS_URL"])


@huey.task()
def work(name):
    """One job."""
    body.run(name)


if __name__ == "__main__":
    import app

    for name in sys.argv[2:]:
        app.work(name)
