"""`PayloadCodec`: what values go through on their way into the store and out of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class PayloadCodec(Protocol):
    """
    Encodes what jobs carry before it is stored, and decodes it when it is read; usually it encrypts.

    `ratchet.contrib.encryption.Keyring` is one. Every method may be called from many threads at once. ``context`` says to
    which job (schedule, signal) and to which field a value belongs; it is the same for both directions, and what was encoded for
    one context must not be decoded for another. Ratchet keeps the id of the key beside the data, in plain sight. Values in plain text, from
    before the codec, are read as they are; not with a codec whose attribute ``refuses_plaintext`` is True.
    """

    def active_key(self) -> str:
        """The id of the key that new values are encoded with: 1 to 64 letters, digits, dots, dashes and underscores."""
        ...

    def keys(self) -> Collection[str]:
        """The ids of the keys that this process is known to have; a node tells the others."""
        ...

    def has_key(self, key: str) -> bool:
        """True if values of this key can be decoded here. A node takes no jobs that need another one."""
        ...

    def encode(self, value: bytes, key: str, context: bytes) -> bytes:
        """*value* as it may be stored, encoded with this key, which is the active one."""
        ...

    def decode(self, data: bytes, key: str, context: bytes) -> bytes:
        """
        What `encode` was given for this context. `MissingKey` if the key is not there.

        Any other error means that the data is not what was stored: the job becomes a dead letter ``unreadable``.
        """
        ...

    def hashed(self, key: str) -> str:
        """
        What is stored of a business or idempotency key; *key* itself to keep it readable.

        It is always the same text for the same key, and what is a hash already stays as it is.
        """
        ...
