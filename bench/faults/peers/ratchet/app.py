"""
Ratchet with its default options: `ratchet worker app:scheduler --concurrency 10`.

Settings: docs/how-to/workers.md; nothing is changed but the number of slots.
"""

import os
import sys

import body

from ratchet import Scheduler

scheduler = Scheduler(os.environ["FAULTS_URL"])


@scheduler.job
def work(name: str) -> None:
    """One job."""
    body.run(name)


if __name__ == "__main__":
    import app

    if sys.argv[1] == "setup":
        app.scheduler.migrate()
    else:
        for name in sys.argv[2:]:
            app.work.enqueue(name).submit()
