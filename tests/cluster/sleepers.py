"""``python -m tests.cluster.sleepers URL``: a node that falls asleep in the middle of a job's transaction."""

from __future__ import annotations

import os
import signal
import socket
import sys
from datetime import UTC, datetime, timedelta

import msgspec

from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import NodeInfo, NodeSpec
from ratchet.model.errors import RatchetError
from ratchet.model.identifiers import new_id
from ratchet.model.job import Progress
from ratchet.model.process import process_name
from ratchet.stores import open_store

NODE = "sleeper"


def main(url: str) -> None:
    """Claim everything, change the first job in a transaction, stop this process; when it wakes, commit."""
    store = open_store(url)
    now = datetime.now(UTC)
    store.register(
        NodeSpec(
            node_id=NODE,
            name=NODE,
            host=socket.gethostname(),
            pid=os.getpid(),
            version="0",
            beat_interval=timedelta(seconds=2),
            silence=timedelta(seconds=5),
            info=msgspec.json.encode(NodeInfo(process=process_name())).decode(),
        ),
        now=now,
    )
    first, *_ = store.claim_next_batch_optimized(
        ClaimRequest(node_id=NODE, claim_id=new_id(), limit=10), now=now
    )
    try:
        with store.begin() as connection:
            assert store.save_progress(first, Progress(fraction=0.5), now=now, within=connection)
            _say(str(first.job_id))
            os.kill(os.getpid(), signal.SIGSTOP)
        _say("committed")
    except RatchetError as error:
        _say(f"refused: {type(error).__name__}")


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
