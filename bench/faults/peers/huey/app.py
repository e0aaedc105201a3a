"""
Huey on Redis, with the handler that puts interrupted tasks back: `huey_consumer app.huey -w 10`.

Settings: docs/deployment.rst of its repository asks for the handler, and for SIGINT instead of SIGTERM, which the variant
`huey-int` sends.
"""

import os
import sys

import body
from huey import RedisHuey
from huey.signals import SIGNAL_INTERRUPTED

huey = RedisHuey("faults", url=os.environ["FAULTS_URL"])


@huey.task()
def work(name):
    """One job."""
    body.run(name)


@huey.signal(SIGNAL_INTERRUPTED)
def put_back(_signal, task, *_args, **_more):
    """Enqueue again what a stopping consumer has interrupted."""
    huey.enqueue(task)


if __name__ == "__main__":
    import app

    for name in sys.argv[2:]:
        app.work(name)
