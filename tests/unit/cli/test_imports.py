"""What a command imports: an import costs more time than most commands take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.scheduler import Scheduler

RUN = """
import json, sys
sys.argv = ["ratchet", *json.loads(sys.argv[1])]
from ratchet.cli import main
try:
    main()
except SystemExit:
    pass
print("\\n" + json.dumps(sorted(sys.modules)))
"""

#: What no command that looks at jobs needs: the engine, drivers and frameworks, and what converts values of other types.
NEVER = (
    "asyncio",
    "pydantic",
    "ratchet.api.submit.capture.reader",
    "ratchet.cli.worker",
    "ratchet.engine",
    "ratchet.stores.memory",
    "ratchet.stores.mongo",
    "ssl",
    "zoneinfo",
)


def modules_of(*words: str, code: str = RUN) -> set[str]:
    """The modules that are imported when ``ratchet`` with these *words* has ended."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET_")}
    ran = subprocess.run(
        [sys.executable, "-c", code, json.dumps(words)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return set(json.loads(ran.stdout.splitlines()[-1]))


def unwanted(found: set[str], *names: str) -> list[str]:
    """Those modules of *found* that are one of *names*, or below it."""
    return sorted(one for one in found if any(one == name or one.startswith(f"{name}.") for name in names))


def _patterns(words: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns of secrets are for errors; health shows what drivers say."""
    return () if words == ("health",) else ("ratchet.defaults.error_sanitizer",)


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "list"),
        ("jobs", "list", "--tag", "a"),
        ("health",),
        ("nodes",),
        ("queues", "list"),
        ("dlq", "summary"),
    ],
    ids=" ".join,
)
def test_a_command_imports_what_it_needs(scheduler: Scheduler, url: str, words: tuple[str, ...]) -> None:
    """No engine, no other store, no conversion of types; with --json nothing that draws tables either."""
    assert unwanted(modules_of(*words, "--url", url), *NEVER, *_patterns(words)) == []
    assert unwanted(modules_of(*words, "--json", "--url", url), *NEVER, *_patterns(words), "rich") == []


def test_help_imports_no_command() -> None:
    """The list of all commands is shown without importing any of them, nor a scheduler."""
    found = modules_of("--help")
    assert (
        unwanted(found, *NEVER, "ratchet.scheduler", "ratchet.stores", "ratchet.api", "ratchet.cli.commands")
        == []
    )


def test_an_application_that_only_submits(tmp_path: Path) -> None:
    """`Scheduler` brings no engine, no driver, no command line and no pattern that only errors need."""
    found = modules_of(
        code="import json, sys\nfrom ratchet import Scheduler\nprint(json.dumps(sorted(sys.modules)))"
    )
    assert unwanted(found, *NEVER, "ratchet.cli", "ratchet.stores.sql", "typer", "rich", "sqlite3") == []
