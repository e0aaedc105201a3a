"""What was canceled before its start does not start, although a worker had claimed it."""

from __future__ import annotations

from pathlib import Path

from ratchet.scheduler import Scheduler
from tests.cluster import shop
from tests.cluster.conftest import StartWorker
from tests.support.waiting import until

JOBS = 1000
#: The worker claims far ahead, keeps what it has claimed, and its next beat is far away: only the start itself can tell.
FAR_AHEAD = {
    "RATCHET_MAX_PREFETCH": "4000",
    "RATCHET_PREFETCH_WINDOW": "60s",
    "RATCHET_HAND_BACK_AFTER": "5m",
    "RATCHET_HEARTBEAT": "2m",
    "RATCHET_SILENCE": "10m",
}


def test_a_thousand_jobs_claimed_ahead_and_canceled_elsewhere_do_not_start(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str, tmp_path: Path
) -> None:
    """
    A worker holds 1,000 claims that wait for a slot. Another process cancels the jobs, then the slots become free:
    none of them starts, and the worker goes on with the next ones.
    """
    gate = tmp_path / "gate"
    scheduler.enqueue_many(shop.note, [(ledger, f"quick-{number}") for number in range(400)])
    blockers = [scheduler.enqueue_now(shop.gated, ledger, f"blocker-{n}", str(gate)) for n in range(2)]
    doomed = scheduler.enqueue_many(shop.note, [(ledger, f"doomed-{number}") for number in range(JOBS)])
    start_worker("ahead", "--concurrency", "2", environment=FAR_AHEAD)
    store = scheduler.backend.store
    until(lambda: sum(node.running for node in store.nodes()) == JOBS + len(blockers), 60, "not claimed")
    assert all(handle.cancel() for handle in doomed)
    gate.touch()
    after = scheduler.enqueue_many(shop.note, [(ledger, f"after-{number}") for number in range(20)])
    for handle in after:
        handle.result(timeout=60)
    until(lambda: sum(node.running for node in store.nodes()) == 0, 60, "claims are left")
    ran = {words[1] for words in shop.lines(ledger) if words[0] == "ran"}
    assert {name for name in ran if name.startswith("doomed")} == set()
    assert {name for name in ran if name.startswith("after")} == {f"after-{number}" for number in range(20)}
