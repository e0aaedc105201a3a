"""
A move that is killed with SIGKILL again and again, at random points, and then runs to its end.

    python -m tests.moves.killing SOURCE TARGET --seed 7 --kills 10

Each try is a process of its own, forked from this one before it has opened anything. It is killed before or after a random call of a
store, or at a random moment in between. After each kill another process looks from which of the two stores a job can be claimed: never from
both, and from the target only at the end. Prints what was seen as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ratchet import Options, new_id
from ratchet.model.claim import ClaimRequest
from ratchet.model.errors import SchemaOutOfDate, StoreMoved
from ratchet.moving import copying, move
from ratchet.stores import open_store

# Before the forks: none of them has to import a driver.
from ratchet.stores.mongo.store import MongoStore
from ratchet.stores.sql.dialects.mysql import dialect as _mysql  # noqa: F401
from ratchet.stores.sql.dialects.postgresql import dialect as _postgresql  # noqa: F401
from ratchet.stores.sql.store import SqlStore

#: The calls of a store between which a move is killed.
CALLS = (
    "put_rows",
    "save_move",
    "fence_off",
    "lift_fence",
    "append_audit",
    "neutral_rows",
    "request_of_node",
)


def forked(work: Callable[[], int]) -> int:
    """The exit code of *work* in a process of its own; -9 if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            code = work()
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            code = 99
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def killed_at(call: int, *, after: bool) -> None:
    """From now on, this process is killed at its n-th call of a store."""
    lock, count = threading.Lock(), 0

    def counted(plain: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            with lock:
                count += 1
                due = count == call
            if due and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = plain(*args, **kwargs)
            if due:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return called

    for store in (SqlStore, MongoStore):
        for name in CALLS:
            setattr(store, name, counted(getattr(store, name)))


def killed_within(seconds: float) -> None:
    """From now on, this process lives so many seconds, wherever it is then."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def attempt(source: str, target: str, chance: random.Random | None) -> int:
    """One try of the move; with *chance* it is killed on the way, if it does not end before."""
    copying.PORTION = 7
    if chance is not None:
        if chance.random() < 0.7:
            killed_at(chance.randint(1, 220), after=chance.random() < 0.5)
        else:
            killed_within(chance.uniform(0.01, 0.6))
    move(source, target, wait=20)
    return 0


def claimable(url: str) -> int:
    """1 if a job of a store can be claimed (it is handed back), else 0."""
    store = open_store(url, Options())
    try:
        now = datetime.now(UTC)
        request = ClaimRequest(node_id="looks", claim_id=new_id(), limit=1)
        claims = [job.claim for job in store.claim_next_batch(request, now=now)]
        if claims:
            store.hand_back(claims, now=now)
        return 1 if claims else 0
    except (StoreMoved, SchemaOutOfDate):
        return 0
    finally:
        store.close()


def run(source: str, target: str, seed: int, kills: int) -> dict[str, Any]:
    """What was seen."""
    chance = random.Random(seed)
    killed, seen = 0, []
    for _ in range(kills):
        # the child must not draw from this generator's copy alone: its next kill would be at the same point
        one = random.Random(chance.random())
        code = forked(lambda one=one: attempt(source, target, one))  # type: ignore[misc]
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"a try ended with {code}")
        killed += code != 0
        seen.append(_seen(source, target))
        if code == 0:
            break
    code = forked(lambda: attempt(source, target, None))
    if code != 0:
        raise SystemExit(f"the last try ended with {code}")
    seen.append(_seen(source, target))
    return {"killed": killed, "seen": seen}


def _seen(source: str, target: str) -> tuple[int, int]:
    code = forked(lambda: claimable(source) + 2 * claimable(target))
    if code > 3:
        raise SystemExit("no store can be looked at")
    return code & 1, code >> 1


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=10)
    given = parser.parse_args()
    sys.stdout.write(json.dumps(run(given.source, given.target, given.seed, given.kills)) + "\n")


if __name__ == "__main__":
    main()
