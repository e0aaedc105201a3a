"""
Procrastinate with the task that retries stalled jobs, which its docs tell users to add; here it runs every minute.

Settings: howto/production/retry_stalled_jobs of its docs, whose example runs every ten minutes. Everything else is the default.
"""

import asyncio
import os
import sys

import body
import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["FAULTS_URL"]))


@app.task(name="work")
async def work(name):
    """One job."""
    await body.arun(name)


@app.periodic(cron="* * * * *")
@app.task(name="rescue", queueing_lock="rescue", pass_context=True)
async def rescue(context, timestamp):
    """Retry the jobs of workers that are silent."""
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)


async def command(verb, names):
    """Install the tables, or enqueue."""
    async with app.open_async():
        if verb == "setup":
            await app.schema_manager.apply_schema_async()
        for name in names:
            await work.defer_async(name=name)


if __name__ == "__main__":
    asyncio.run(command(sys.argv[1], sys.argv[2:]))
