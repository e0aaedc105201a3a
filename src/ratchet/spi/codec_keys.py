"""Which keys a node has: it takes no jobs that need another one, and tells the others in its row."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ratchet.spi.fault_log import FaultLog
from ratchet.spi.payload_codec import PayloadCodec

faults = FaultLog(logging.getLogger("ratchet.parts"))

#: How many keys a node names in its row, at most.
KEYS_TOLD = 100


def has_keys(codec: PayloadCodec | None, keys: Iterable[str]) -> bool:
    """True if values of all these keys can be decoded here."""
    if codec is None:
        return False
    try:
        return all(codec.has_key(key) is True for key in keys)
    except BaseException as error:
        faults.note(f"PayloadCodec.has_key() failed: {type(error).__name__}")
        return False


def known_keys(codec: PayloadCodec | None) -> list[str]:
    """The ids of the keys that this node has."""
    if codec is None:
        return []
    try:
        return sorted(map(str, codec.keys()))[:KEYS_TOLD]
    except BaseException as error:
        faults.note(f"PayloadCodec.keys() failed: {type(error).__name__}")
        return []
