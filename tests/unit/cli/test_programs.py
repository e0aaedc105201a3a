"""Commands that are programs of their own: the demo, the conformance kit, and ``python -m ratchet``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import Result

from ratchet.cli.demo import shop
from ratchet.cli.demo.scenario import DemoJob
from ratchet.model.status import JobStatus

ROOT = Path(__file__).parents[3]


def ratchet(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ratchet", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_the_demo_ends_as_it_should(tmp_path: Path) -> None:
    """Every kind of end is reached, no credential is stored or printed, and nothing is left behind."""
    done = ratchet("demo", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"]
    assert told["problems"] == []
    assert {job["status"] for job in told["jobs"]} == {"SUCCEEDED", "FAILED", "CANCELED"}
    assert len(told["jobs"]) == 9
    for secret in (shop.PASSWORD, shop.API_KEY):
        assert secret not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (None, "was never seen"),
        (
            SimpleNamespace(status=JobStatus.RUNNING, attempts=1, error=None),
            "ended as RUNNING instead of FAILED",
        ),
        (SimpleNamespace(status=JobStatus.FAILED, attempts=2, error="Boom"), "took 2 attempts instead of 1"),
        (SimpleNamespace(status=JobStatus.FAILED, attempts=1, error="Bang"), "its error does not say 'Boom'"),
        (SimpleNamespace(status=JobStatus.FAILED, attempts=1, error="Boom!"), None),
    ],
)
def test_the_demo_is_a_check(job: Any, problem: str | None) -> None:
    """An end that differs in any way from what was expected is a problem."""
    act = DemoJob("does something", SimpleNamespace(id=1), JobStatus.FAILED, 1, error="Boom", job=job)  # type: ignore[arg-type]
    assert (act.problem or "").startswith(problem or "")
    assert (act.problem is None) == (problem is None)


@pytest.mark.parametrize("code", [0, 1])
def test_the_verdict_of_the_kit_is_the_exit_code(
    bare: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The harness and pytest's arguments reach the kit, the URL its environment; stdout is one document."""
    seen: list[Any] = []

    def run(harness: str, arguments: Any) -> int:
        seen.append((harness, list(arguments), os.environ.get("RATCHET_URL")))
        print("3 of 3 contracts")  # noqa: T201 - as pytest does
        return code

    monkeypatch.setattr("ratchet.tck.runner.run", run)
    monkeypatch.setenv("RATCHET_URL", "")
    result = bare("tck", "shop.tests:Harness", "--url", "sqlite:///x.db", "--json", "--", "-x", "-q")
    assert result.exit_code == code
    assert json.loads(result.stdout)["ok"] == (code == 0)
    assert seen == [("shop.tests:Harness", ["-x", "-q"], "sqlite:///x.db")]
    assert bare("tck", "shop.tests:Harness").exit_code == code


def test_the_module_is_the_command() -> None:
    """``python -m ratchet`` calls itself ratchet and starts without the parts it does not need."""
    done = ratchet("--help")
    assert done.returncode == 0
    assert "Usage: ratchet" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["worker"], 2, "Missing argument"),
        (["worker", "shop/jobs.py"], 1, "shop.jobs:scheduler"),
        (["worker", "shop.jobs", "--log-level", "LOUD"], 2, "DEBUG, INFO"),
        (["worker", "shop.jobs", "--drain", "soon"], 2, "--drain"),
        (["worker", "shop.jobs", "--processes", "0"], 2, "--processes"),
        (["worker", "no_such_package.jobs", "--reload"], 1, "cannot be found"),
    ],
)
def test_a_worker_that_cannot_start_says_why(
    bare: Callable[..., Result], words: list[str], code: int, message: str, reset_logging: None
) -> None:
    """Mistakes on the command line are told before a process is started."""
    result = bare(*words)
    assert result.exit_code == code
    assert message in result.output.replace("│", "")
    assert "Traceback" not in result.output


def test_a_child_needs_neither_typer_nor_rich() -> None:
    """Worker processes are many: they do not carry the command line around."""
    code = (
        "import sys, ratchet.cli.worker.child; print(sorted({'typer', 'rich', 'pytest'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
