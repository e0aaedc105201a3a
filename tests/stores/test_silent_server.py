"""A server that goes silent without closing anything: `failover_patience` says how long a call waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from ratchet import Options, StoreUnavailable, SubmissionBlocked
from ratchet.model.claim import ClaimRequest
from ratchet.model.identifiers import new_id
from ratchet.stores import open_store
from ratchet.tck.faults import Proxy
from ratchet.tck.steps import Steps
from tests.stores.backlog import NOW

PATIENCE = 6.0
SLACK = 1.5  # seconds of a busy machine


def insert(store: Any) -> None:
    steps = Steps()
    steps.store = store
    steps.submit()


def insert_many(store: Any) -> None:
    steps = Steps()
    steps.store = store
    steps.submit_many(3, business_key=None)


def claim(store: Any) -> None:
    store.claim_next_batch(ClaimRequest(node_id="n", claim_id=new_id(), limit=1), now=NOW)


def read(store: Any) -> None:
    store.queues()


@pytest.mark.parametrize("kind", ["postgresql_url", "mysql_url", "mongodb_url"])
def test_no_call_waits_longer_than_that(kind: str, request: pytest.FixtureRequest) -> None:
    """With statements that may take 30 s, and 10 s to connect: a call on a silent connection ends after the patience."""
    url = request.getfixturevalue(kind)
    parts = urlsplit(url)
    with Proxy((parts.hostname or "127.0.0.1", parts.port or 0)) as proxy:
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        through = parts._replace(netloc=f"{user}127.0.0.1:{proxy.address[1]}")
        if parts.scheme == "mongodb":
            through = through._replace(query="directConnection=true")
        with closing(open_store(through.geturl(), Options(failover_patience=PATIENCE))) as store:
            store.migrate()
            calls: list[Callable[[Any], None]] = [insert, insert_many, claim, read]
            for call in calls:
                call(store)
            for call in calls:
                proxy.silent = True
                begun = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    call(store)
                assert time.monotonic() - begun < PATIENCE + SLACK, call
                proxy.cut_all()
                proxy.silent = False
                call(store)


@pytest.mark.parametrize("kind", ["postgresql_url", "mysql_url"])
def test_who_waits_for_a_lock_says_so(kind: str, request: pytest.FixtureRequest) -> None:
    """Statements get little time then, and a submission that an earlier try of it holds up still says what it waits for."""
    with closing(open_store(request.getfixturevalue(kind), Options(failover_patience=PATIENCE))) as store:
        store.migrate()
        steps = Steps()
        steps.store = store
        spec = steps.spec()
        with store.begin() as earlier:
            store.insert([spec], now=NOW, within=earlier)
            with pytest.raises(SubmissionBlocked, match="whose commit the database has not answered yet"):
                store.insert([spec], now=NOW)


def test_the_shares_of_the_patience() -> None:
    """A third for the new connection at most; the server may report its own timeout before it counts as silent."""
    usual = Options().timeouts()
    assert (usual.connect, usual.statement, usual.answer) == (10.0, 30.0, None)
    short = Options(failover_patience=timedelta(seconds=15)).timeouts()
    assert (short.connect, short.statement, short.answer) == (5.0, 8.0, 10.0)
    long = Options(failover_patience=timedelta(minutes=5)).timeouts()
    assert (long.connect, long.statement, long.answer) == (10.0, 30.0, 290.0)
