"""The jobs of the shop; a worker finds this module by its name."""

from ratchet.contrib.django import scheduler
from shop.models import Order


@scheduler.job(max_retries=3)
def charge(number: int) -> str:
    """Uses the ORM, as a view does."""
    changed = Order.objects.filter(number=number, paid=False).update(paid=True)
    return "paid" if changed else "was paid before"
