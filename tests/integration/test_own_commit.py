"""A job's own commit: a beat that comes right after it does not take the job for lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ratchet import JobContext, JobStatus
from ratchet.testing.manual import ManualScheduler
from tests.integration.conftest import Stores

said: list[str] = []


def book() -> str:
    """Commits its success, and goes on."""
    with JobContext.current().transaction() as tx:
        tx.result = "booked"
    JobContext.current().check_canceled()
    said.append("after the commit")
    return "the transaction's result counts"


def test_a_beat_between_the_commit_and_the_next_line(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is gone from the store, because the job has succeeded: its code is not interrupted."""
    said.clear()
    scheduler = ManualScheduler(store=stores.open())
    store, begin = scheduler.store, scheduler.store.begin
    core: Any = scheduler._core

    @contextmanager
    def begin_and_beat(*, within: object | None = None) -> Iterator[object]:
        with begin(within=within) as connection:
            yield connection
        core.manual.assembly.heartbeat.run_once(core.now())

    monkeypatch.setattr(store, "begin", begin_and_beat)
    handle = scheduler.enqueue_now(book)
    scheduler.drain()
    assert handle.status() is JobStatus.SUCCEEDED
    assert handle.result() == "booked"
    assert said == ["after the commit"]
