"""The applications in ``examples``: each passes its own tests, and starts with its one command, on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.terminal import hear_interrupts
from tests.support.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["fastapi_service", "flask_app", "django_shop"]
RESULTS = {
    "fastapi_service": "order 42 is packed",
    "flask_app": "Ann's: invoice for order 42",
    "django_shop": "paid",
}


TESTS = {"fastapi_service": 3, "flask_app": 2, "django_shop": 3}


@pytest.fixture(params=["sqlite", "postgresql"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Where an example keeps its data."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("RATCHET_", "EXAMPLE_"))
    }
    if request.param == "postgresql":
        kept["EXAMPLE_URL"] = request.getfixturevalue("postgresql_url")
    else:
        kept["EXAMPLE_FILE"] = str(tmp_path / "django_shop.sqlite3")
    return kept


@pytest.mark.parametrize("name", NAMES)
def test_its_own_tests_pass(name: str, environment: dict[str, str]) -> None:
    """By the documented command, in the directory of the repository."""
    command = [
        str(Path(sys.executable).with_name("pytest")),
        "-q",
        "-p",
        "no:cacheprovider",
        f"examples/{name}",
    ]
    done = subprocess.run(
        command,
        cwd=EXAMPLES.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{TESTS[name]} passed" in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_it_starts_with_one_command(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    """An order becomes a job, a worker runs it, the metrics count it and the dashboard shows it; Ctrl-C ends it in order."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / name / "run.py")],
            cwd=tmp_path,
            env={**environment, "EXAMPLE_PORT": str(port)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # What runs in the background of a shell ignores Ctrl-C, and so do its children.
            preexec_fn=hear_interrupts,
        )
    try:
        base = f"http://127.0.0.1:{port}"
        until(lambda: _answers(f"{base}/metrics", process), 90, what="it does not serve")
        job = json.loads(_get(f"{base}/orders/42", "POST"))["job"]
        until(
            lambda: json.loads(_get(f"{base}/jobs/{job}"))["status"] == "SUCCEEDED",
            90,
            what="the job does not run",
        )
        assert json.loads(_get(f"{base}/jobs/{job}"))["result"] == RESULTS[name]
        assert "ratchet_" in _get(f"{base}/metrics")
        page = _get(f"{base}/dashboard/jobs/{job}")
        assert 'href="/dashboard/' in page
        assert "SUCCEEDED" in page.upper()
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)
    assert "Traceback" not in log.read_text().replace("KeyboardInterrupt", "")


def _get(url: str, method: str = "GET") -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
        return answer.read().decode()


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "it has ended"
    try:
        _get(url)
    except urllib.error.HTTPError:
        raise
    except OSError:
        return False
    return True
