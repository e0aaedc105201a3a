"""
Celery on Redis for jobs that may run twice: late acknowledgement, rejection when a child is lost, no prefetching.

Settings: https://docs.celeryq.dev/en/stable/glossary.html ("late acknowledgment"); the visibility timeout is the default.
"""

import os
import sys

import body
from celery import Celery

app = Celery("app", broker=os.environ["FAULTS_URL"])
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1)


@app.task(name="work")
def work(name):
    """One job."""
    body.run(name)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        work.delay(name)
