"""Each directory of tests keeps what its name says."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_unit_tests_do_not_know_the_servers() -> None:
    """Neither by a fixture, which `tests/unit/conftest.py` refuses, nor by a server of their own."""
    knowing = [
        str(file.relative_to(TESTS))
        for file in (TESTS / "unit").rglob("*.py")
        if "tests.services" in file.read_text()
    ]
    assert knowing == []
