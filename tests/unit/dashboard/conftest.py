"""A shop with something on every page, and a browser without windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from starlette.testclient import TestClient

from ratchet import Scheduler, dashboard
from tests.browser import shop

#: What a browser says when a form of the page itself is sent.
SAME = {"sec-fetch-site": "same-origin"}
JSON = {"accept": "application/json"}

Browse = Callable[..., TestClient]


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    """An empty store in a file."""
    made = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", allow=["tests.browser.shop"])
    yield made
    made.close()


@pytest.fixture
def ids(scheduler: Scheduler) -> dict[str, UUID]:
    """The same store with jobs in every state; some of their ids by name."""
    return shop.fill(shop.declare(scheduler), mails=12)


@pytest.fixture
def browse(scheduler: Scheduler) -> Browse:
    """Makes a client of a dashboard; what is given goes to `dashboard.asgi`."""

    def make(
        client: tuple[str, int] = ("127.0.0.1", 5000), base: str = "http://localhost:8080", **options: object
    ) -> TestClient:
        app = dashboard.asgi(scheduler, **options)  # type: ignore[arg-type]
        return TestClient(app, client=client, base_url=base, follow_redirects=False)

    return make


@pytest.fixture
def client(browse: Browse) -> TestClient:
    """A browser on this machine."""
    return browse()
