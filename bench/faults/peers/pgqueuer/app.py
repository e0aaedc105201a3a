"""
pgqueuer with its default heartbeat (30 s), as `pgq run app:main --max-concurrent-tasks 10` starts it.

Settings: defaults, with a batch size below the number of slots. Its docs were not checked for better ones.
"""

import asyncio
import logging
import os
import sys
from contextlib import asynccontextmanager

import asyncpg
import body
import pgqueuer
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries


@asynccontextmanager
async def main():
    """A worker's connection and entry point."""
    connection = await asyncpg.connect(os.environ["FAULTS_URL"])
    try:
        queue = PgQueuer.from_asyncpg_connection(connection)

        @queue.entrypoint("work")
        async def work(job):
            await body.arun(job.payload.decode())

        yield queue
    finally:
        await connection.close()


async def command(verb, names):
    """Install the tables, or enqueue."""
    connection = await asyncpg.connect(os.environ["FAULTS_URL"])
    queries = Queries(AsyncpgDriver(connection))
    if verb == "setup":
        await queries.install()
    else:
        await queries.enqueue(["work"] * len(names), [name.encode() for name in names], [0] * len(names))
    await connection.close()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        logging.basicConfig(level=logging.INFO)
        asyncio.run(pgqueuer.run("app:main", batch_size=5, max_concurrent_tasks=10))
    else:
        asyncio.run(command(sys.argv[1], sys.argv[2:]))
