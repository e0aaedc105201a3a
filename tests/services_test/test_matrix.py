"""`make matrix`: what it counts as failed, and what its page says of that."""

from __future__ import annotations

import pytest

from tests.matrix import __main__ as matrix
from tests.matrix.rows import Row

SAID = """
.F..E                                                                    [100%]
=========================== short test summary info ============================
FAILED tests/lifecycle/test_gates.py::test_rates[postgresql-two words] - AssertionError: a - b
ERROR tests/tck/test_postgresql.py::TestClaims::test_order
2 failed, 10 passed, 3 skipped, 1 error in 9.12s
"""


def test_what_failed() -> None:
    """Failures and errors are found by their ids, with whatever stands in the brackets, and without what was said of them."""
    assert matrix.failed_tests(SAID) == {
        "tests/lifecycle/test_gates.py::test_rates[postgresql-two words]",
        "tests/tck/test_postgresql.py::TestClaims::test_order",
    }


def test_the_page_says_what_is_unexplained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure with a reason is shown with it and is not unexplained; one without is. A row that was not run says so."""
    rows = [
        Row("pooled", ("postgresql",), explained={"a.py::listens": "It cannot."}),
        Row("old", ("sqlite",)),
        Row("absent", ("sqlite",), python="3.99"),
    ]
    monkeypatch.setattr(matrix, "ROWS", rows)
    known = {
        "date": "2026-11-19",
        "with": "a pooler",
        "passed": 7,
        "failures": ["a.py::listens", "a.py::other"],
        "unexplained": ["a.py::other"],
        "unsteady": ["a.py::races"],
    }
    page = matrix.written(
        {"pooled": known, "absent": {"date": "2026-11-19", "missing": "there is no python3.99"}}
    )
    assert (
        "| `pooled` | postgresql | a pooler | 7 | 2, 1 unexplained; 1 only beside others | 2026-11-19 |"
        in page
    )
    assert "`pooled`: `a.py::listens` fails. It cannot." in page
    assert "| `old` | sqlite | | not run | | |" in page
    assert "| `absent` | | there is no python3.99 | not run | | 2026-11-19 |" in page
