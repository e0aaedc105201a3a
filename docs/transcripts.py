"""
Produces the transcripts of commands in the docs: ``python docs/transcripts.py`` (``make transcripts``) runs them and writes them into the pages.

A block of the page that follows ``<!-- run: NAME -->`` is the scenario NAME of this file. Tests run the scenarios again, and compare everything but
ids, times and sizes.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from typer.testing import CliRunner

from ratchet import JobStatus, Scheduler
from ratchet.cli.app import app

DOCS = Path(__file__).parent
BLOCK = re.compile(r"(<!-- run: ([\w-]+) -->\n```console\n)(.*?)(```\n)", re.DOTALL)
PAGES = tuple(page for page in sorted(DOCS.rglob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8")))
WIDTH = "108"
#: A database that 0.1.0 has made.
FIRST_RELEASE = DOCS.parent / "tests" / "upgrades" / "dumps" / "sqlite.sql"
#: The application of all scenarios. Its beats are short, so that a death is noticed soon.
SHOP = """\
import os
import time
from pathlib import Path
from threading import Event

from ratchet import Options, Scheduler

scheduler = Scheduler("sqlite:///shop.db", options=Options(heartbeat=0.2, silence=int(os.environ.get("SILENCE", "1")), concurrency=2, node_name="web-1"))
released = Event()


@scheduler.job
def greet(name):
    return f"hello {name}"


@scheduler.job
def charge(order):
    raise ValueError(f"the card of order {order} was declined")


@scheduler.job
def ship(order):
    return f"shipped {order}"


@scheduler.job(max_retries=1)
def pay(order):
    if not Path("died").exists():
        Path("died").touch()
        os._exit(9)
    return f"paid {order}"


@scheduler.job
def export(table):
    released.wait(60)


class Declined(Exception):
    pass


@scheduler.job
def bill(order):
    if order % 100 == 0:
        raise Declined(f"the card of order {order} was declined")
    if Path("down").exists():
        raise TimeoutError("the bank does not answer")


@scheduler.job
def mail(order):
    if Path("down").exists():
        raise ConnectionError("mail.example.org refused the connection")


@scheduler.job
def resize(picture):
    time.sleep(3)
    return f"resized {picture}"
"""
NODE = "import shop, time\nwith shop.scheduler:\n    time.sleep(60)\n"


class Shop:
    """An application in a directory of its own, whose commands are run and written down."""

    def __init__(self) -> None:
        import shop  # type: ignore[import-not-found]  # written by `opened`

        self.module = shop
        self.scheduler: Scheduler = shop.scheduler
        self.written: list[str] = []

    def run(self, *words: str, only: str | None = None) -> None:
        """Run a command and write it down; *only*: the lines that this expression finds, with dots for the others."""
        runner = CliRunner(env={"COLUMNS": WIDTH, "RATCHET_URL": "sqlite:///shop.db", "NO_COLOR": "1"})
        result = runner.invoke(app, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        lines = [line.rstrip() for line in result.output.strip("\n").splitlines()]
        if only is not None:
            lines = list(_shortened(lines, only))
        self.written += [f"$ ratchet {' '.join(words)}", *lines]

    def watch(self, *words: str, for_line: str, only: str) -> None:
        """Run a command that does not end until it has printed a line with *for_line*, and end it; write it down."""
        environment = {**os.environ, "RATCHET_URL": "sqlite:///shop.db", "NO_COLOR": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "ratchet", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        lines: list[str] = []
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                if re.search(for_line, line):
                    break
        finally:
            process.terminate()
            process.communicate(timeout=60)
        self.written += [f"$ ratchet {' '.join(words)}", *_shortened(lines, only)]

    def until(self, happened: Callable[[], object]) -> None:
        """Wait for something."""
        deadline = time.monotonic() + 60
        while not happened():
            if time.monotonic() > deadline:
                raise TimeoutError("the scenario did not come to its point")
            time.sleep(0.02)


def _shortened(lines: Sequence[str], only: str) -> Iterator[str]:
    is_left_out = False
    for line in lines:
        if re.search(only, line):
            yield line
        elif not is_left_out:
            yield "…"
        is_left_out = not re.search(only, line)


def short(job: object) -> str:
    """As much of an id as people type."""
    return str(getattr(job, "id", job))[:18]


# --- the scenarios ------------------------------------------------------------------------------


def no_node(shop: Shop) -> None:
    """Jobs are submitted, and no worker was started."""
    job = shop.module.greet.enqueue("ann").submit()
    shop.run("health", only="health|nodes|pending|oldest|Problems|code|──|start")
    shop.run("jobs", "explain", short(job))


def held_back(shop: Shop) -> None:
    """A worker runs, but a queue is paused, and a function is unknown to the worker."""
    shop.scheduler.queues.pause("emails")
    with shop.scheduler:
        mail = shop.module.greet.enqueue("ann").with_queue("emails").submit()
        shop.run("health", only="health|Problems|code|──|emails")
        shop.run("jobs", "explain", short(mail))
        shop.run("queues", "resume", "emails")
        mail.wait(timeout=30)
        shop.run("jobs", "list", "--queue", "emails")


def twice(shop: Shop) -> None:
    """The process of a worker dies while it runs a job; another worker runs it again."""
    job = shop.module.pay.enqueue(42).submit()
    subprocess.run([sys.executable, "-c", NODE], check=False, capture_output=True, timeout=60)
    with shop.scheduler:
        job.wait(timeout=60)
    shop.run("jobs", "show", short(job))


def never(shop: Shop) -> None:
    """One job was canceled because its parent failed, another one because nobody ran it in time."""
    late = shop.module.greet.enqueue("ann").with_expiry(timedelta(milliseconds=1)).submit()
    steps = shop.module.charge.enqueue(7).then(shop.module.ship, 7).submit()
    with shop.scheduler:
        shop.until(lambda: steps.last.status() is JobStatus.CANCELED and late.status() is JobStatus.CANCELED)
    shop.run("jobs", "list", "--status", "CANCELED")
    shop.run("jobs", "show", short(steps.last), only="status|call|reason|parent|canceled|Cancel")
    shop.run("jobs", "show", short(late), only="status|call|reason|expires|canceled|Cancel")
    shop.run("dlq", "summary")


def grows(shop: Shop) -> None:
    """Many jobs have ended."""
    handles = shop.scheduler.enqueue_many(shop.module.greet, [(str(n),) for n in range(200)])
    with shop.scheduler:
        shop.until(lambda: shop.scheduler.jobs.counts().get(JobStatus.SUCCEEDED) == len(handles))
    shop.run(
        "db",
        "stats",
        only="rows|──|scheduler_job |job_execution|job_queue|together|retention|what|jobs|letters|logs|runs",
    )
    began = time.monotonic()
    shop.until(lambda: time.monotonic() > began + 1.1)
    shop.run("db", "purge", "--older-than", "1s", "--dry-run")


def hangs(shop: Shop) -> None:
    """Two jobs have all slots of the only node, and do not end."""
    try:
        with shop.scheduler:
            stuck = [shop.module.export.enqueue(table).submit() for table in ("orders", "invoices")]
            shop.until(lambda: all(job.status() is JobStatus.RUNNING for job in stuck))
            waiting = shop.module.greet.enqueue("ann").submit()
            shop.until(lambda: [reason.code for reason in waiting.explain()] == ["slots_full"])
            shop.run("jobs", "explain", short(waiting))
            shop.run("jobs", "list", "--status", "RUNNING")
            shop.run("jobs", "cancel", short(stuck[0]))
            shop.module.released.set()
            waiting.wait(timeout=30)
            shop.run("jobs", "list", "--status", "SUCCEEDED", "--target", "shop:greet")
    finally:
        shop.module.released.set()


def first_hour(shop: Shop) -> None:
    """Two workers run, and one of them is killed while it runs a job."""
    shop.run("db", "upgrade")
    environment = {**os.environ, "NO_COLOR": "1", "SILENCE": "4"}  # a worker that starts late is not dead
    command = [sys.executable, "-m", "ratchet", "worker", "shop:scheduler"]
    workers = [
        subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
        for _ in range(2)
    ]
    try:
        shop.until(lambda: len(shop.scheduler.nodes.list()) == 2)
        shop.run("health", "--min-nodes", "2", only="health|nodes|Problems|code|──|start")
        job = shop.module.resize.enqueue("cat.png").submit()
        shop.until(lambda: job.status() is JobStatus.RUNNING)
        holder = next(node for node in shop.scheduler.nodes.list() if node.running)
        group = next(worker.pid for worker in workers if os.getpgid(holder.pid) == worker.pid)
        os.killpg(group, signal.SIGKILL)
        job.wait(timeout=60)
        shop.run(
            "jobs",
            "show",
            short(job),
            only="status|call|attempts|crashes|result|Runs|attempt|──|web|beating|ran|job",
        )
        shop.run("health", "--min-nodes", "2", only="health|nodes|Problems|code|──|start")
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait(timeout=30)


def last_night(shop: Shop) -> None:
    """The bank and the mail server were away; some orders fail for a reason of their own."""
    Path("down").touch()
    shop.scheduler.enqueue_many(shop.module.bill, [(n,) for n in range(1, 301)])
    shop.scheduler.enqueue_many(shop.module.mail, [(n,) for n in range(100)])

    def ended(status: JobStatus, how_many: int) -> Callable[[], bool]:
        return lambda: shop.scheduler.jobs.counts().get(status) == how_many

    with shop.scheduler:
        shop.until(ended(JobStatus.FAILED, 400))
        Path("down").unlink()
        shop.run("dlq", "summary")
        shop.run("dlq", "retry", "--target", "bill", "--error", "TimeoutError", "--limit", "5", "--yes")
        shop.until(ended(JobStatus.SUCCEEDED, 5))
        shop.run("jobs", "list", "--target", "bill", "--status", "SUCCEEDED", "--limit", "2")
        shop.run("dlq", "retry", "--target", "bill", "--error", "TimeoutError", "--yes")
        shop.run("dlq", "retry", "--target", "mail", "--yes")
        shop.until(ended(JobStatus.SUCCEEDED, 397))
        shop.run("dlq", "summary")


def permit(shop: Shop) -> None:
    """A limit of one is taken."""
    shop.scheduler.limits.set("printer", concurrent=1)
    try:
        with shop.scheduler:
            first = shop.module.export.enqueue("orders").with_resource("printer").submit()
            shop.until(lambda: first.status() is JobStatus.RUNNING)
            second = shop.module.greet.enqueue("ann").with_resource("printer").submit()
            shop.run("jobs", "explain", short(second))
            shop.module.released.set()
    finally:
        shop.module.released.set()


def priorities(shop: Shop) -> None:
    """A campaign stands before everything else."""
    shop.scheduler.submit_all(shop.module.greet.enqueue(str(n)).with_tags("newsletter") for n in range(1200))
    shop.run("jobs", "set-priority", "low", "--tag", "newsletter", "--dry-run")
    shop.run("jobs", "set-priority", "low", "--tag", "newsletter", "--yes")


def alarms(shop: Shop) -> None:
    """What is a problem, and what waits by design."""
    scheduler = Scheduler(
        "sqlite:///shop.db",
        options=shop.scheduler.options.replace(queues=("default", "emails")),
        allow=["shop"],
    )
    scheduler.limits.set("printer", concurrent=1)
    scheduler.queues.pause("emails")
    try:
        with scheduler:
            for table in ("orders", "invoices"):
                shop.module.export.enqueue(table).with_resource("printer").submit()
            shop.until(lambda: shop.scheduler.jobs.counts().get(JobStatus.RUNNING) == 1)
            for queue in ("reports", "emails"):
                shop.module.greet.enqueue("ann").with_queue(queue).submit()
            shop.until(lambda: [one.code for one in shop.scheduler.health().waiting] == ["no_permit"])
            shop.run(
                *("health", "--max-wait", "5m", "--max-dead-letters", "100", "--min-nodes", "1"),
                only="health|Problems|code|──|is due|in order|oldest",
            )
            shop.module.released.set()
    finally:
        shop.module.released.set()
        scheduler.close()


def look(shop: Shop) -> None:
    """A queue is paused, and two long jobs run."""
    shop.scheduler.queues.pause("mails")
    try:
        with shop.scheduler:
            for name in ("ann", "bob"):
                shop.module.greet.enqueue(name).submit().wait(timeout=30)
                shop.module.greet.enqueue(name).with_queue("mails").submit()
            jobs = [
                shop.module.export.enqueue(table).with_queue("reports").submit()
                for table in ("orders", "invoices")
            ]
            shop.until(lambda: all(job.status() is JobStatus.RUNNING for job in jobs))
            shop.until(lambda: shop.scheduler.nodes.list()[0].running == 2)
            shop.run("top", "--once")
            shop.module.released.set()
    finally:
        shop.module.released.set()


def take_out(shop: Shop) -> None:
    """A node runs two long jobs, and the machine has to be taken away."""
    try:
        with shop.scheduler:
            jobs = [shop.module.export.enqueue(table).submit() for table in ("orders", "invoices")]
            shop.until(lambda: all(job.status() is JobStatus.RUNNING for job in jobs))
            shop.until(lambda: shop.scheduler.nodes.list()[0].running == 2)
            shop.run("nodes", "list")
            shop.run("nodes", "drain", "web-1")
            shop.run("nodes", "resume", "web-1")
            shop.run("nodes", "stop", "web-1")
            shop.module.released.set()
    finally:
        shop.module.released.set()


def replaced(shop: Shop) -> None:
    """A process of a worker has run as many jobs as it may."""
    shop.scheduler.migrate()
    shop.scheduler.enqueue_many(shop.module.greet, [(str(n),) for n in range(60)])
    shop.watch(
        *("worker", "shop:scheduler", "--processes", "2", "--max-jobs", "10", "--max-memory", "512M"),
        for_line="is replaced",
        only="is replaced",
    )


def purge(shop: Shop) -> None:
    """Many jobs have ended, and one has failed."""
    shop.scheduler.enqueue_many(shop.module.greet, [(str(n),) for n in range(200)])
    shop.module.charge.enqueue(7).submit()
    with shop.scheduler:
        shop.until(
            lambda: (
                sum(
                    shop.scheduler.jobs.counts().get(one, 0)
                    for one in (JobStatus.SUCCEEDED, JobStatus.FAILED)
                )
                == 201
            )
        )
    shop.run("db", "stats", only="rows|──|scheduler_job |job_execution|retention|what|jobs|letters|logs|runs")
    began = time.monotonic()
    shop.until(lambda: time.monotonic() > began + 1.1)
    shop.run("db", "purge", "--older-than", "1s", "--dry-run")
    shop.run("db", "purge", "--older-than", "1s", "--yes")


def upgrade(shop: Shop) -> None:
    """A database of 0.1.0."""
    made = sqlite3.connect("shop.db")
    made.executescript(FIRST_RELEASE.read_text())
    made.close()
    shop.run("db", "upgrade", "--check", only="would|migration|──|V002|serves|nodes|unless|to, ")


def rollback(shop: Shop) -> None:
    """A database that was upgraded, and 0.1.0 is to start again."""
    shop.scheduler.migrate()
    shop.run("db", "rollback")


def browser(shop: Shop) -> None:
    """The dashboard, on a port that is free."""
    shop.scheduler.migrate()
    shop.watch("dashboard", "--bind", "127.0.0.1:0", for_line="dashboard on", only="dashboard on")


SCENARIOS: dict[str, Callable[[Shop], None]] = {
    "first-hour": first_hour,
    "last-night": last_night,
    "permit": permit,
    "priorities": priorities,
    "alarms": alarms,
    "look": look,
    "take-out": take_out,
    "replaced": replaced,
    "purge": purge,
    "upgrade": upgrade,
    "rollback": rollback,
    "browser": browser,
    "no-node": no_node,
    "held-back": held_back,
    "twice": twice,
    "never": never,
    "grows": grows,
    "hangs": hangs,
}


@contextmanager
def opened() -> Iterator[Shop]:
    """The application, in a directory of its own."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "shop.py").write_text(SHOP)
        os.chdir(place)
        sys.path.insert(0, place)
        sys.modules.pop("shop", None)
        try:
            shop = Shop()
            yield shop
            shop.scheduler.close()
        finally:
            sys.modules.pop("shop", None)
            sys.path.remove(place)
            os.chdir(before)


def transcript(name: str) -> str:
    """What a scenario prints."""
    with opened() as shop:
        SCENARIOS[name](shop)
        return "\n".join(shop.written) + "\n"


def normalized(text: str) -> list[str]:
    """The words of a transcript, without what differs each time."""
    text = re.sub(r"V\d{3}__\w+(,\s+V\d{3}__\w+)*", "VERSIONS", text)
    text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]*", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*", "TIME", text)
    text = re.sub(r"\b[\w.-]+:\d+(-[0-9a-f]+)?", "NODE", text)
    text = re.sub(r"\b[\w.-]+-[0-9a-f]{12}\b", "NODE", text)
    text = re.sub(r"(host|process) [\w.-]+", r"\1 X", text)
    text = re.sub(r"\b\d+(\.\d+)?( ?[KMG]iB| B|ms|s|m|h)?( ago)?\b", "N", text)
    return re.sub(r"[─]+", "─", text).replace(" now ", " N ").split()


def main() -> int:
    """Run every scenario that a page shows, and write it there."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(
            BLOCK.sub(lambda found: found[1] + transcript(found[2]) + found[4], text), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
