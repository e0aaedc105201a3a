"""
pgqueuer as `pgq run app:main --batch-size 5 --max-concurrent-tasks 10 --shutdown-on-listener-failure` starts it.

Settings: docs/guides/deployment.md of its repository asks for that last option and a supervisor. The heartbeat timeout is the
default (30 s). Ten slots allow batches of five at most.
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
        asyncio.run(
            pgqueuer.run("app:main", batch_size=5, max_concurrent_tasks=10, shutdown_on_listener_failure=True)
        )
    else:
        asyncio.run(command(sys.argv[1], sys.argv[2:]))
