"""Encryption on real nodes of every store: each lane, transactions, event loops and streaming batches."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from ratchet import JobStatus, Scheduler
from ratchet.contrib.encryption import Keyring
from tests.integration import encryption_lanes as lanes
from tests.integration.dumps import dump
from tests.integration.encryption_samples import SECRET
from tests.support.store_urls import KINDS, fresh_url


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_in_and_out(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Values arrive, results come back, and the store holds none of them."""
    url = fresh_url(kind, request, tmp_path)
    scheduler = Scheduler(
        url,
        allow=[lanes.__name__],
        codec=Keyring(active="k", keys={"k": os.urandom(32)}, hash_keys=os.urandom(32)),
    )
    in_process = scheduler.job(lane="process")(lanes.in_process)

    async def submit() -> list[Any]:
        return [await scheduler.aio.enqueue_now(lanes.threaded, SECRET) for _ in range(3)]

    handles = [
        scheduler.enqueue(lanes.threaded, SECRET).with_business_key(SECRET).submit(),
        scheduler.enqueue_now(lanes.awaited, SECRET),
        scheduler.enqueue_now(in_process, SECRET),
        scheduler.enqueue_now(lanes.transacted, SECRET),
        *asyncio.run(submit()),
        *asyncio.run(submit()),  # the store is open now: the event loop sends by itself where it can
    ]
    with scheduler.store.begin() as connection:
        handles.append(scheduler.enqueue(lanes.threaded, SECRET).submit(within=connection))
    failed = scheduler.enqueue_now(lanes.failing, SECRET)
    batch = (
        scheduler.streaming_batch("stream")
        .from_iterable([SECRET] * 7)
        .process(lanes.threaded)
        .with_chunk_size(3)
        .then_on_batch_success(lanes.threaded, SECRET)
        .start()
    )
    with scheduler:
        assert [handle.result(timeout=60) for handle in handles] == [SECRET] * len(handles)
        assert failed.wait(timeout=60) is JobStatus.FAILED
        batch.wait(timeout=60)
    assert failed.job().error == f"ValueError: {SECRET}"
    assert SECRET in str(scheduler.jobs.logs(handles[2].id))
    assert SECRET not in dump(scheduler.store)
    scheduler.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_dump_would_show_it(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The same jobs without a codec leave the secret behind."""
    scheduler = Scheduler(fresh_url(kind, request, tmp_path), allow=[lanes.__name__])
    handle = scheduler.enqueue(lanes.threaded, SECRET).with_business_key(SECRET).submit()
    with scheduler:
        handle.result(timeout=60)
    assert dump(scheduler.store).count(SECRET) > 2
    scheduler.close()
