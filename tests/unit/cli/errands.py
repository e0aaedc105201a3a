"""Jobs for the tests of the command line."""

from __future__ import annotations

import logging

SECRET = "hunter2-planted"

logger = logging.getLogger(__name__)


def greet(name: str) -> str:
    """Succeeds, and logs."""
    logger.warning("greeting %s", name)
    return f"hello {name}"


def fail(reason: str) -> None:
    """Fails, with credentials in its message, its log line and its traceback."""
    logger.error("connecting with password=%s", SECRET)
    raise RuntimeError(f"{reason}: postgresql://app:{SECRET}@db/shop")
