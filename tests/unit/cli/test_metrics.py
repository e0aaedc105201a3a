"""``ratchet metrics`` and the small HTTP server behind it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ratchet.cli.exit_codes import Refused
from ratchet.cli.http import Address, Answer, Pages
from ratchet.model.metrics import STORE_METRICS
from ratchet.scheduler import Scheduler
from tests.support.waiting import until
from tests.unit.cli import errands
from tests.unit.cli.conftest import CommandLine


def fail() -> Answer:
    raise RuntimeError("a secret")


@pytest.fixture
def served() -> Iterator[str]:
    """Where two pages are served."""
    pages = Pages(Address("127.0.0.1", 0), {"/live": lambda: Answer("ok\n"), "/broken": fail})
    host, port = pages.start()
    yield f"http://{host}:{port}"
    pages.close()


class TestPages:
    def test_a_page(self, served: str) -> None:
        """It answers, with or without a query, and says how long it is."""
        with urllib.request.urlopen(f"{served}/live?verbose=1", timeout=10) as answer:
            assert (answer.status, answer.read(), answer.headers["Content-Length"]) == (200, b"ok\n", "3")
            assert answer.headers["Cache-Control"] == "no-store"

    def test_only_the_head(self, served: str) -> None:
        """HEAD has no body."""
        request = urllib.request.Request(f"{served}/live", method="HEAD")
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert (answer.status, answer.read()) == (200, b"")

    @pytest.mark.parametrize(("path", "method", "status"), [("/x", "GET", 404), ("/live", "POST", 501)])
    def test_anything_else(self, served: str, path: str, method: str, status: int) -> None:
        """An unknown page and an unknown method are refused."""
        request = urllib.request.Request(f"{served}{path}", method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        assert refused.value.code == status
        refused.value.close()

    def test_a_page_that_fails(self, served: str, caplog: pytest.LogCaptureFixture) -> None:
        """The client is told that it failed, the log why."""
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(f"{served}/broken", timeout=10)
        assert failed.value.code == 500
        assert b"secret" not in failed.value.read()
        failed.value.close()
        assert "the page /broken failed" in caplog.text

    def test_a_port_that_is_taken(self) -> None:
        """The message names the address."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(Refused, match=f"cannot listen on 127.0.0.1:{port}"):
                Pages(Address("127.0.0.1", port), {}).start()


@pytest.mark.parametrize(
    ("text", "address"),
    [("9464", ("127.0.0.1", 9464)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:9464", ("::1", 9464))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    """Only a port is loopback: strangers are let in where somebody says so."""
    assert Address.of(text) == address


@pytest.mark.parametrize("text", ["", "here", "127.0.0.1", ":", "localhost:99999", ":80"])
def test_addresses_that_are_none(text: str) -> None:
    """The message says what to write."""
    with pytest.raises(Refused, match=r"write 127\.0\.0\.1:9464"):
        Address.of(text)


def test_the_metrics_of_a_store(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """Every gauge of the store is printed once, in Prometheus' own format."""
    scheduler.enqueue(errands.greet, "ann").with_queue("emails").submit()
    families = {family.name: family for family in text_string_to_metric_families(ratchet("metrics").stdout)}
    missing = {metric.name for metric in STORE_METRICS} - set(families) - {"ratchet_breaker_open"}
    assert not missing
    depths = {
        (s.labels["queue"], s.labels["status"]): s.value for s in families["ratchet_queue_depth"].samples
    }
    assert depths["emails", "due"] == 1


def test_as_json(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """The same for programs; to print once and to serve exclude each other."""
    scheduler.enqueue(errands.greet, "ann").submit()
    found = ratchet.json("metrics")
    assert {"queue": "default", "status": "due", "value": 1} in found["ratchet_queue_depth"]
    assert "leave it out" in ratchet("metrics", "--json", "--http", "0", code=1).stderr


def test_they_are_served_until_it_is_told_to_stop(scheduler: Scheduler, tmp_path: Path) -> None:
    """A process of its own, scraped over HTTP, ended by SIGTERM with exit code 0."""
    scheduler.enqueue(errands.greet, "ann").submit()
    assert scheduler._core.url is not None
    command = [
        sys.executable,
        "-m",
        "ratchet",
        "metrics",
        "--http",
        "127.0.0.1:0",
        "--url",
        scheduler._core.url,
    ]
    log = tmp_path / "log"
    with log.open("wb") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            until(lambda: "metrics on http://" in log.read_text(), 30, "it does not serve")
            url = log.read_text().split("metrics on ")[1].split()[0]
            with urllib.request.urlopen(url, timeout=10) as answer:
                page = answer.read().decode()
            assert 'ratchet_queue_depth{queue="default",status="due"} 1.0' in page
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
