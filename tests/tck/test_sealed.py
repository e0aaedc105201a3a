"""A store behind a codec fulfils every contract, but for searches by what it cannot read."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ratchet.contrib.encryption import Keyring
from ratchet.spi.store import JobStore
from ratchet.stores.sealed import sealed
from ratchet.tck.contracts.key_places import TestKeyPlaces, TestSetKeys
from ratchet.tck.suite import contract_classes
from tests.tck.sqlite import SqliteFileHarness

pytest_plugins = ["ratchet.tck.fixtures"]

#: Contracts that a store behind a codec fulfils in another way; `tests/integration/test_encryption.py` says how. It refuses searches by what
#: the store cannot read, and takes texts that a database refuses: none of them reaches it.
OTHERWISE = {
    "TestBadRun": (
        "test_values_of_a_run",
        "test_a_log_line_is_refused_or_kept_readable",
        "test_values_that_come_with_an_end",
    ),
    "TestSearchCriteria": (
        "test_counting_ends",
        "test_each",
        "test_trace",
        "test_verbs_for_many",
        "test_what_cannot_be_read",
        "test_more_than_a_page_reads",
    ),
    "TestFind": ("test_by_error_text",),
    # It puts jobs at the place of its own key: their streams are other ones, and a claim that names a target alone does not
    # look there; `tests/integration/test_missing_keys.py` says what comes of that.
    "TestParkedTargets": ("test_each_once",),
    "TestPark": (
        "test_only_a_node_that_has_the_target_gets_it",
        "test_such_a_node_still_gets_ordinary_jobs",
        "test_it_is_parked_for_the_last_node_s_complaint",
    ),
    "TestInsert": ("test_every_field_comes_back",),
    "TestLoad": (
        "test_what_waits_and_since_when",
        "test_closed_streams_are_in_it",
        "test_what_runs_and_since_when",
        "test_counts_end_at_a_limit",
    ),
    "TestStreams": (
        "test_jobs_with_equal_gates_share_a_stream",
        "test_absent_is_not_a_name",
        "test_a_claim_names_its_stream",
    ),
    "TestUnusedStreams": (
        "test_what_no_job_has_is_deleted",
        "test_a_number_is_not_used_again",
        "test_two_streams_of_one_key_are_one_gate",
    ),
    "TestKeyPlaces": tuple(name for name in vars(TestKeyPlaces) if name.startswith("test_")),
    "TestSetKeys": tuple(name for name in vars(TestSetKeys) if name.startswith("test_")),
}

for name, contracts in contract_classes().items():
    globals()[name] = type(name, (contracts,), dict.fromkeys(OTHERWISE.get(name, ())))

KEY = os.urandom(32)


class SealedHarness(SqliteFileHarness):
    """SQLite in a file, with a keyring around it."""

    def reopen(self) -> JobStore:
        return sealed(super().reopen(), Keyring(active="k", keys={"k": KEY}))


@pytest.fixture(scope="module")
def ratchet_harness() -> Iterator[SealedHarness]:
    harness = SealedHarness()
    yield harness
    harness.shutdown()
