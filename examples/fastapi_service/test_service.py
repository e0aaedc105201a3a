"""The service's own tests: jobs live in memory, the service's data does not."""

import service
from fastapi.testclient import TestClient

from ratchet.testing import isolated


def test_an_order_is_packed() -> None:
    """The endpoint submits one job, which ends with what the browser is shown."""
    with isolated(service.scheduler) as test, TestClient(service.app) as client:
        job = client.post("/orders/7").json()["job"]
        test.assert_enqueued(service.pack, 7)
        test.drain()
        assert client.get(f"/jobs/{job}").json() == {"status": "SUCCEEDED", "result": "order 7 is packed"}
        assert "SUCCEEDED labeled" in client.get(f"/jobs/{job}/events").text


def test_an_order_that_is_refused_has_no_job() -> None:
    """The order is there already, so nothing is submitted."""
    with isolated(service.scheduler) as test, TestClient(service.app) as client:
        client.post("/orders/9")
        assert client.post("/orders/9").status_code == 409
        assert len(test.enqueued()) == 1


def test_the_job_alone() -> None:
    """Progress is kept with the job."""
    with isolated(service.scheduler) as test:
        handle = service.pack.enqueue(8).submit()
        test.drain()
        progress = handle.progress()
        assert progress is not None
        assert (progress.fraction, progress.message) == (1.0, "labeled")
