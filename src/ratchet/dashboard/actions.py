"""What was done through this dashboard: each action is logged, and the latest are kept for the audit page."""

from __future__ import annotations

import logging
import threading
from collections import deque
from datetime import datetime

from msgspec import Struct

from ratchet.dashboard.text import shown

logger = logging.getLogger("ratchet.dashboard")

#: Actions that the audit page can show.
KEPT = 200


class Action(Struct, frozen=True, kw_only=True):
    """Who did what to which object, and what came of it; ``count``: how many jobs were changed."""

    at: datetime
    who: str
    verb: str
    object: str
    outcome: str
    count: int = 0
    address: str | None = None


class Actions:
    """The latest actions of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: deque[Action] = deque(maxlen=KEPT)

    def note(self, action: Action) -> None:
        """Log an action and keep it."""
        with self._lock:
            self._latest.append(action)
        logger.info(
            "%s: %s %s: %s (%d changed)",
            *(shown(text, 500) for text in (action.who, action.verb, action.object, action.outcome)),
            action.count,
            extra={"ratchet_who": action.who, "ratchet_verb": action.verb, "ratchet_object": action.object},
        )

    def latest(self) -> list[Action]:
        """Newest first."""
        with self._lock:
            return list(reversed(self._latest))
