"""
Oban for Python with its defaults: `oban start --queues default:10`.

Settings: docs/production.md of its repository calls this command ready for production, with logging, pruning and the rescue of
orphans. The rescue comes every 60 s, for jobs that have run for more than 300 s (`oban/_lifeline.py`).
"""

import asyncio
import os
import sys

import body
from oban import Oban, worker
from psycopg_pool import AsyncConnectionPool


@worker(queue="default")
class Work:
    """One job."""

    async def process(self, job):
        """Run it."""
        await body.arun(job.args["name"])


async def put(names):
    """Enqueue."""
    async with AsyncConnectionPool(os.environ["FAULTS_URL"], open=False) as pool:
        await Oban(pool=pool).enqueue_many([Work.new({"name": name}) for name in names])


if __name__ == "__main__":
    import app

    asyncio.run(app.put(sys.argv[2:]))
