"""A store that 0.1.0 has made: it is moved after its upgrade, not before, and its jobs mean what they meant."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ratchet import JobFilter, Options, Scheduler
from ratchet.model.errors import SchemaOutOfDate
from ratchet.model.moves import RowKind
from ratchet.model.status import JobStatus
from ratchet.moving import move
from ratchet.stores import open_store
from tests.moves import samples
from tests.moves.conftest import MakeUrl
from tests.moves.test_pairs import CHAINS
from tests.upgrades.restore import DUMPS, restore

EXPECTED: dict[str, Any] = json.loads((DUMPS / "expected.json").read_text())
#: What 0.1.0 knew of jobs.
FIELDS = {name for one in EXPECTED.values() for job in one["jobs"].values() for name in job}


def seen(url: str) -> dict[str, dict[str, Any]]:
    """Every job as this version sees it, as plain values, without what is empty."""
    scheduler = Scheduler(url, allow=["tests.upgrades"])
    found = scheduler.jobs.find(JobFilter(include_archived=True), limit=200)
    jobs = json.loads(msgspec.json.encode([{name: getattr(job, name) for name in FIELDS} for job in found]))
    scheduler.close()
    return {job["id"]: {name: value for name, value in job.items() if value is not None} for job in jobs}


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: "-".join(chain))
def test_tables_of_0_1_0(chain: tuple[str, ...], make_url: MakeUrl) -> None:
    """
    With the tables of 0.1.0 a move refuses to begin, names the upgrade, and makes nothing on the other side. After the upgrade every job
    of the dump, in each state, is what 0.1.0 itself saw, in the next store and in the two after that; what its dead node ran waits.
    """
    url, target = make_url(chain[0]), make_url(chain[1])
    restore(chain[0], url)
    with pytest.raises(SchemaOutOfDate, match="ratchet db upgrade"):
        move(url, target)
    untouched = open_store(target, Options())
    with pytest.raises(SchemaOutOfDate, match="ratchet db upgrade"):
        untouched.check_schema()
    untouched.close()
    store = open_store(url, Options())
    store.migrate()
    expected = EXPECTED[chain[0]]["jobs"]
    assert {job["status"] for job in expected.values()} == {status.value for status in JobStatus}
    for number, kind in enumerate(chain[1:]):
        target = target if number == 0 else make_url(kind)
        report = move(url, target, wait=0.1, hand_back=True)
        assert report.handed_back == (number == 0), "the job of the node that died"
        before = samples.rows_of(store)
        store.close()
        url, store = target, open_store(target, Options())
        after = samples.rows_of(store)
        for one in RowKind:
            assert {key: row for key, row in after[one].items() if key in before[one]} == before[one], one
        found = seen(url)
        assert found.keys() == expected.keys()
        for job_id, job in expected.items():
            if job["status"] == JobStatus.RUNNING:
                assert found[job_id]["status"] == JobStatus.PENDING
                continue
            assert found[job_id] == job
    store.close()
