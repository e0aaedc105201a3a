"""
Celery on Redis for jobs that may run twice: late acknowledgement and no prefetching.

Settings: optimizing.rst of its user guide ("Reserve one task at a time"). The visibility timeout is the default, an hour.
The variant `celery-60` sets it to 60 s and rejects the task of a lost child; the docs describe both and warn of both.
"""

import os
import sys

import body
from celery import Celery

app = Celery("app", broker=os.environ["FAULTS_URL"])
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)
if seconds := os.environ.get("FAULTS_VARIANT"):
    app.conf.update(
        task_reject_on_worker_lost=True, broker_transport_options={"visibility_timeout": int(seconds)}
    )


@app.task(name="work")
def work(name):
    """One job."""
    body.run(name)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        work.delay(name)
