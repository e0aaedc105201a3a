"""The same app with encryption; ROTATION_KEYS names its keys, the active one first."""

from __future__ import annotations

import os

from ratchet import Scheduler
from ratchet.contrib.encryption import Keyring

KEYS = {"a": b"A" * 32, "b": b"B" * 32, "c": b"C" * 32}


def keyring(names: str) -> Keyring:
    """These keys, of which the first is active."""
    return Keyring(active=names[0], keys={name: KEYS[name] for name in names})


if "ROTATION_KEYS" in os.environ:
    scheduler = Scheduler(allow=["tests.chaos.jobs"], codec=keyring(os.environ["ROTATION_KEYS"]))
