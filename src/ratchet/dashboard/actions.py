"""What is done through this dashboard is logged; the store's audit log has it too, with what others do."""

from __future__ import annotations

import logging

from msgspec import Struct

from ratchet.dashboard.text import shown

logger = logging.getLogger("ratchet.dashboard")


class Action(Struct, frozen=True, kw_only=True):
    """Who did what to which object, and what came of it; ``count``: how many jobs were changed."""

    who: str
    verb: str
    object: str
    outcome: str
    count: int = 0
    address: str | None = None


def note(action: Action) -> None:
    """Log an action."""
    logger.info(
        "%s: %s %s: %s (%d changed)",
        *(shown(text, 500) for text in (action.who, action.verb, action.object, action.outcome)),
        action.count,
        extra={
            "ratchet_who": action.who,
            "ratchet_verb": action.verb,
            "ratchet_object": action.object,
            "ratchet_address": action.address,
        },
    )
