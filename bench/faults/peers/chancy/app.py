"""
Chancy with its default plugins (recovery among them) and one queue of ten: `chancy --app app.chancy worker start`.

Settings: the page of the plugin says that it is on by default. It looks every 60 s for workers that have been silent for 90 s.
"""

import asyncio
import os
import sys

import body
from chancy import Chancy, Queue, job

chancy = Chancy(os.environ["FAULTS_URL"])


@job(queue="default")
def work(*, name: str):
    """One job."""
    body.run(name)


async def command(verb, names):
    """Install the tables, or enqueue."""
    async with chancy:
        if verb == "setup":
            await chancy.migrate()
            await chancy.declare(Queue("default", concurrency=10))
        for name in names:
            await chancy.push(work.job.with_kwargs(name=name))


if __name__ == "__main__":
    import app

    asyncio.run(app.command(sys.argv[1], sys.argv[2:]))
