"""The shop's own tests: pytest-django runs them, and so does `manage.py test --pattern "test_*.py"`."""

from django.db import connection
from django.test import TestCase
from shop.jobs import charge
from shop.models import Order

from ratchet.contrib.django import scheduler
from ratchet.testing import IsolatedTestCase


class TestJobs(IsolatedTestCase, TestCase):
    """Jobs are in memory, orders in the test database."""

    ratchet_schedulers = (scheduler,)

    def test_an_order_is_charged(self) -> None:
        """The view stores the order and submits one job, which pays it."""
        job = self.client.post("/orders/7").json()["job"]
        self.ratchet.assert_enqueued(charge, 7)
        self.ratchet.drain()
        assert Order.objects.get(number=7).paid
        assert self.client.get(f"/jobs/{job}").json() == {"status": "SUCCEEDED", "result": "paid"}


class TestTransactions(TestCase):
    """Jobs are where they are in production: in the database, inside of the transaction of the order."""

    def test_the_job_is_stored_with_the_order(self) -> None:
        """Both are gone after the test, which rolls back."""
        self.client.post("/orders/8")
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM scheduler_job")
            assert (Order.objects.count(), cursor.fetchone()) == (1, (1,))

    def test_an_order_that_is_refused_has_no_job(self) -> None:
        """The order is there already, so the block is rolled back."""
        assert [self.client.post("/orders/9").status_code for _ in range(2)] == [200, 409]
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM scheduler_job")
            assert cursor.fetchone() == (1,)
