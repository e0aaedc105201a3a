"""A small shop whose jobs fill a dashboard: for the browser tests, and for the pictures in the docs."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from ratchet import RESULT, JobContext, JobStatus, Priority, Scheduler, do_not_retry
from tests.support.waiting import until


@do_not_retry("the bank refused the card")
class CardDeclined(Exception):
    """What a bank says."""


def charge(invoice: int, amount: float, currency: str = "EUR") -> dict[str, object]:
    """Takes money, unless the bank refuses."""
    ctx = JobContext.current()
    ctx.logger.info("charging invoice %s: %.2f %s", invoice, amount, currency)
    if invoice % 7 == 0:
        ctx.logger.warning("the bank refused invoice %s", invoice)
        raise CardDeclined(f"card of invoice {invoice} declined: insufficient funds")
    ctx.logger.info("done")
    return {"invoice": invoice, "receipt": f"R-{invoice:06}", "amount": amount}


def send_mail(to: str, subject: str) -> str:
    """Mail, with a server that is sometimes away."""
    if to.endswith("@example.invalid"):
        raise ConnectionError(f"mail server of {to.partition('@')[2]} does not answer")
    return "sent"


def resize(path: str, width: int = 800) -> str:
    """A picture."""
    return f"{path}@{width}"


def import_user(number: int) -> int:
    """One item of a batch."""
    if number % 11 == 3:
        raise ValueError(f"row {number}: no e-mail address")
    return number


def export_report(kind: str) -> str:
    """Takes as long as it is allowed to."""
    ctx = JobContext.current()
    for step in range(2000):
        ctx.progress(min(step / 20, 0.65), "reading orders")
        ctx.check_canceled()
        time.sleep(0.05)
    return kind


def follow(steps: list[str]) -> str:
    """Says what it waits for, one file after the other."""
    ctx = JobContext.current()
    for number, step in enumerate(map(Path, steps)):
        ctx.logger.info("waiting for %s", step.name)
        ctx.progress(number / len(steps), step.name)
        until(step.exists, 60)
    return "followed to the end"


def validate(order: int) -> int:
    """A step."""
    return order


def reserve(order: int) -> int:
    """A step."""
    return order


def ship(order: int) -> str:
    """A step."""
    return f"shipped {order}"


def notify(order: str) -> str:
    """A step."""
    return order


def refund(order: int) -> int:
    """What follows a failure."""
    return order


def cleanup() -> None:
    """What a timetable calls."""


NAMES = {
    charge: "billing.charge",
    refund: "billing.refund",
    send_mail: "mail.send",
    resize: "media.resize",
    import_user: "customers.import_row",
    export_report: "reports.export",
    validate: "orders.validate",
    reserve: "orders.reserve",
    ship: "orders.ship",
    notify: "orders.notify",
    cleanup: "maintenance.cleanup",
}


def declare(scheduler: Scheduler) -> Scheduler:
    """Give the functions the names that they are stored under."""
    for function, name in NAMES.items():
        scheduler.job(name=name)(function)
    return scheduler


def fill(scheduler: Scheduler, *, mails: int = 40) -> dict[str, UUID]:
    """Submit and run enough to give every page something to show; some ids by name."""
    ids: dict[str, UUID] = {}
    scheduler.limits.set("bank", concurrent=5)
    scheduler.limits.set_rate("mail-server", 100, per=timedelta(minutes=1))
    scheduler.schedule_recurring("0 2 * * *", cleanup, zone="Europe/Berlin", name="nightly-cleanup")
    scheduler.schedule_recurring(timedelta(minutes=15), resize, "logo.png", name="thumbnails")
    paused = scheduler.schedule_recurring(
        "30 6 * * MON", send_mail, "boss@example.com", "Week", name="weekly-report"
    )
    paused.pause()
    with scheduler:
        for number in range(1, 22):
            handle = (
                scheduler.enqueue(charge, number, 19.99 * number)
                .with_tags("billing")
                .with_resource("bank")
                .with_queue("payments")
                .submit()
            )
            ids[{14: "failed", 20: "charged"}.get(number, "other")] = handle.id
        for number in range(mails):
            host = "example.invalid" if number % 9 == 4 else "example.com"
            scheduler.enqueue(send_mail, f"user{number}@{host}", "Welcome").with_queue("mail").with_tags(
                "welcome"
            ).submit()
        scheduler.enqueue_many(resize, [(f"img/{number}.jpg",) for number in range(25)])
        batch = (
            scheduler.enqueue_batch("import-customers")
            .for_each(range(40), import_user)
            .then_on_batch_success(cleanup)
            .submit()
        )
        ids["batch"] = batch.id
        chain = (
            scheduler.enqueue(validate, 4711)
            .then(reserve, 4711)
            .then(ship, 4711)
            .then(notify, RESULT)
            .then_on_failure(refund, 4711)
            .submit()
        )
        ids["chain"] = chain.id
        report = scheduler.enqueue(export_report, "monthly").with_queue("reports").submit()
        ids["running"] = report.id
        until(lambda: batch.context().is_complete, 60)
        until(lambda: report.status() is JobStatus.RUNNING, 60)
        until(lambda: not _open(scheduler), 60)
        report.cancel()
    for number in range(12):
        scheduler.enqueue(resize, f"later/{number}.jpg").with_delay(timedelta(hours=number + 1)).submit()
    scheduler.enqueue(charge, 99, 5.0).with_priority(Priority.HIGH).with_queue("payments").submit()
    signal = scheduler.enqueue(ship, 4712).await_signal("order:4712:approved").submit()
    ids["waiting"] = signal.id
    held = scheduler.enqueue(send_mail, "held@example.com", "Held").with_queue("mail").submit()
    held.pause()
    ids["paused"] = held.id
    ids["pending"] = (
        scheduler.enqueue(send_mail, "new@example.com", "Hello").with_queue("newsletter").submit().id
    )
    scheduler.queues.pause("newsletter")
    scheduler.breakers.open("tax-service")
    return ids


def _open(scheduler: Scheduler) -> int:
    counts = scheduler.jobs.counts()
    return counts[JobStatus.PENDING] + counts[JobStatus.RUNNING] + counts[JobStatus.WAITING] - 1
