"""The application's own tests."""

from shop import create_app, invoice, ratchet

from ratchet.testing import isolated

app = create_app()


def test_an_order_is_invoiced() -> None:
    """The view submits one job, which runs inside the application context."""
    with isolated(ratchet.scheduler) as test:
        job = app.test_client().post("/orders/7").json["job"]
        test.assert_enqueued(invoice, 7)
        test.drain()
        answer = app.test_client().get(f"/jobs/{job}").json
        assert answer == {"status": "SUCCEEDED", "result": "Ann's: invoice for order 7"}


def test_an_order_that_is_refused_has_no_job() -> None:
    """The order and its job are one transaction; this test uses the real database for it."""
    client = app.test_client()
    client.post("/orders/8")
    before = ratchet.scheduler.jobs.count()
    assert client.post("/orders/8").status_code == 409
    assert ratchet.scheduler.jobs.count() == before
    ratchet.scheduler.close()
