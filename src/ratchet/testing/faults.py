"""A store whose calls can fail, as seen by one node of a simulation."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ratchet.model.errors import CommitUnknown, StoreUnavailable

#: Calls that change something: a lost answer to these is what fences and tokens are for.
WRITES = frozenset(
    {
        "insert",
        "claim_next_batch",
        "complete",
        "cancel",
        "settle",
        "expire",
        "retry",
        "pause",
        "resume",
        "hand_back",
        "mark_started",
        "hand_back_unknown",
        "park",
        "save_progress",
        "save_state",
        "register",
        "beat",
        "rescue",
        "deregister",
        "append_logs",
        "advance",
        "append_children",
        "seal",
        "finish",
        "cancel_batch",
        "acquire_lock",
        "release_lock",
    }
)
_DIRECT = frozenset({"name", "capabilities"})


class Crash(BaseException):
    """The simulated process has ended here and now."""


class FaultyStore:
    """
    Passes calls on to the real store, unless fate intervenes.

    Before a call: the process dies, or the connection is lost and nothing was done. After a write:
    the process dies, or the connection is lost and the change was made all the same.
    """

    def __init__(
        self, store: Any, dice: random.Random, witness: Callable[[str, Any, Any], None] = lambda *_: None
    ) -> None:
        self._store = store
        self._dice = dice
        self._witness = witness  # sees every write as it was really made
        self.crash_rate = 0.0
        self.loss_rate = 0.0
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in _DIRECT or not callable(found):
            return found
        return self._wrapped(name, found)

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: Any, **kwargs: Any) -> Any:
            self._fate(f"before {name}", StoreUnavailable)
            answer = call(*args, **kwargs)
            if name in WRITES:
                self._witness(name, args, answer)
                self._fate(f"after {name}", CommitUnknown)
            return answer

        return faulty

    def _fate(self, where: str, lost: type[StoreUnavailable]) -> None:
        if self.dead:
            raise Crash(where)
        roll = self._dice.random()
        if roll < self.crash_rate:
            self.dead = True
            raise Crash(where)
        if roll < self.crash_rate + self.loss_rate:
            raise lost(f"simulated: connection lost {where}")
