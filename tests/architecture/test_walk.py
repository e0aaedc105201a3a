"""A plain job's way through the code stays short, so that a stranger can read all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.store_urls import fresh_url
from tests.support.walk import walk

#: The most files of `ratchet` that a plain job may visit: submitted, and claimed, run and completed.
SUBMIT = 18
RUN = 36


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_plain_job_visits_few_files(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A layer that only forwards is no reason for a longer way; beats and other services do not count."""
    visited = walk(fresh_url(kind, request, tmp_path))
    assert len(visited.submit) <= SUBMIT, "\n".join(["a submission visits", *visited.submit])
    assert len(visited.run) <= RUN, "\n".join(["a run visits", *visited.run])
