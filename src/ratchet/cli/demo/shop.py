"""The shop's jobs: ordinary functions."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time

from ratchet.api.context import JobContext
from ratchet.model.errors import do_not_retry

logger = logging.getLogger(__name__)

#: These must appear nowhere: neither in the store nor on the screen.
PASSWORD = "hunter2-in-the-demo"
API_KEY = "sk_live_51DemoDemoDemoDemo"


@do_not_retry("the supplier's account is closed")
class AccountClosed(Exception):
    """A failure that no second attempt can fix."""


def charge(order: int) -> str:
    """Succeeds."""
    logger.info("charging order %d", order)
    time.sleep(0.6 * order)
    return f"receipt-{order}"


def reserve_stock(order: int) -> str:
    """Fails on its first attempt, succeeds on its second."""
    if JobContext.current().attempt == 1:
        raise ConnectionError("the warehouse did not answer")
    return f"shelf for order {order}"


def pay_supplier(order: int) -> None:
    """Fails for good, and puts credentials into its message, as real code does."""
    raise AccountClosed(f"POST https://shop:{PASSWORD}@supplier.example/pay refused (api_key={API_KEY})")


def send_newsletter(readers: int) -> None:
    """Takes long, and is canceled while it runs."""
    context = JobContext.current()
    for reader in range(readers):
        context.check_canceled()
        if reader % 10 == 0:
            context.progress(reader / readers, f"{reader} of {readers} letters")
        time.sleep(0.02)


def print_catalog(pages: int) -> None:
    """Takes longer than its timeout allows."""
    for _ in range(pages):
        time.sleep(0.05)


async def fetch_rates(currency: str) -> float:
    """An ``async def`` job: runs on the node's event loop."""
    await asyncio.sleep(1.2)
    return {"EUR": 1.0, "USD": 1.08}[currency]


def sign_invoices(rounds: int) -> str:
    """CPU-bound: runs in a process of its own, on another core."""
    return hashlib.pbkdf2_hmac("sha256", b"invoice", b"salt", rounds).hex()[:12]
