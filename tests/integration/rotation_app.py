"""A scheduler whose active key the environment names; it has all three."""

from __future__ import annotations

import os

from ratchet import Options, Scheduler
from ratchet.contrib.encryption import Keyring

KEYS = {"a": b"A" * 32, "b": b"B" * 32, "c": b"C" * 32}


def made(url: str, active: str, name: str | None = None) -> Scheduler:
    """A scheduler on *url* that writes with *active*."""
    return Scheduler(
        url,
        allow=[__name__],
        codec=Keyring(active=active, keys=KEYS),
        options=Options(concurrency=4, node_name=name),
    )


def echo(value: str) -> str:
    return value


if "ROTATION_URL" in os.environ:
    scheduler = made(os.environ["ROTATION_URL"], os.environ["ROTATION_ACTIVE"])
