"""The supervisor beats for the nodes that live, for no others, and does not give up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from ratchet.cli.worker.heartbeats import Heartbeats
from ratchet.cli.worker.messages import Ready
from ratchet.model.errors import StoreUnavailable
from tests.support.waiting import until

READY = Ready(
    node_id="n",
    url="sqlite:///x",
    options={"schema": "jobs", "pool_size": 50},
    heartbeat=0.02,
    drain_timeout=1,
)


class BeatBook:
    """A store that writes down who was beaten for."""

    def __init__(self) -> None:
        self.beats: list[list[str]] = []
        self.released: list[str] = []
        self.away = False
        self.closed = False
        self.woken: list[str] = []
        self.beaten = threading.Event()

    def beat_only(self, node_ids: Sequence[str], *, now: datetime) -> set[str]:
        self._require()
        assert now.tzinfo is not None
        self.beats.append(list(node_ids))
        self.beaten.set()
        return set(node_ids)

    def deregister(self, node_id: str, *, now: datetime) -> int:
        self._require()
        self.released.append(node_id)
        return 2

    def coordinator(self) -> Any:
        told = Mock()
        told.notify_new_work.side_effect = lambda priority: self.woken.append("sent")
        told.stop.side_effect = lambda: self.woken.append("flushed")
        return told

    def database_time(self) -> datetime:
        return datetime.now(UTC)

    def close(self) -> None:
        self.closed = True

    def _require(self) -> None:
        if self.away:
            raise StoreUnavailable("postgresql://app:hunter2@db is away")


class Bench:
    def __init__(self) -> None:
        self.book = BeatBook()
        self.alive: list[str] = ["a", "b"]
        self.opened: list[tuple[str, Any]] = []

        def open_store(url: str, options: Any) -> Any:
            self.opened.append((url, options))
            return self.book

        self.heartbeats = Heartbeats(lambda: self.alive, open_store=open_store)


def test_it_beats_for_those_that_live_again_and_again() -> None:
    """At every interval, asking anew who lives; nobody alive: no statement."""
    bench = Bench()
    bench.heartbeats.start(READY)
    assert bench.book.beaten.wait(5)
    bench.alive = ["b"]
    until(lambda: bench.book.beats[-1] == ["b"])
    bench.alive = []
    time.sleep(0.1)
    count = len(bench.book.beats)
    time.sleep(0.1)
    assert len(bench.book.beats) == count
    bench.heartbeats.close()
    assert bench.book.closed


def test_the_store_is_opened_once_with_the_options_of_the_app() -> None:
    """The first child that is ready names it; the pool is small, since one connection is enough."""
    bench = Bench()
    bench.heartbeats.start(READY)
    bench.heartbeats.start(READY)
    bench.heartbeats.close()
    [(url, options)] = bench.opened
    assert url == READY.url
    assert options.schema == "jobs"
    assert options.pool_size == 3


def test_a_store_of_one_process_needs_no_beats() -> None:
    """Where no other process can see the store, nobody could rescue and nothing is opened."""
    bench = Bench()
    bench.heartbeats.start(Ready(node_id="n", url="", options={}, heartbeat=2, drain_timeout=1, shared=False))
    bench.heartbeats.close()
    assert bench.opened == []


def test_a_database_that_is_away_is_said_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Beats go on when it is back; the log is not filled meanwhile."""
    bench = Bench()
    bench.book.away = True
    with caplog.at_level(logging.WARNING):
        bench.heartbeats.start(READY)
        time.sleep(0.2)
        assert len(caplog.records) == 1
        bench.book.away = False
        assert bench.book.beaten.wait(5)
    bench.heartbeats.close()


def test_what_a_killed_child_held_is_handed_back() -> None:
    """A node that was told to leave is released by name; a database that is away only costs a warning."""
    bench = Bench()
    bench.heartbeats.release("too early: no store is known")
    bench.heartbeats.start(READY)
    bench.heartbeats.release("a")
    bench.book.away = True
    bench.heartbeats.release("b")
    bench.heartbeats.close()
    assert bench.book.released == ["a"]
    assert bench.book.woken == ["sent", "flushed"], "and others are told, before this process ends"
