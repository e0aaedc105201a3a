"""
Encryption of what jobs carry: ``Scheduler(url, codec=Keyring(active="2026-11", keys={...}))``.

Needs the extra ``encryption``. AES-256-GCM with a random 96-bit nonce for each value; the job's id and the name of the field are
authenticated with it, so that a value that was moved to another job or field does not decrypt.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, NoReturn

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ratchet.model.errors import ConfigurationError, MissingKey, UnreadablePayload
from ratchet.model.payload.envelope import KEY_ID
from ratchet.spi.fault_log import FaultLog

#: Bytes of a key, and of the nonce of a value.
KEY_SIZE: Final = 32
NONCE_SIZE: Final = 12
#: Seconds for which a key that a provider did not have, or failed to give, is not asked for again.
ASK_AGAIN: Final = 5.0
#: How a hashed business or idempotency key begins.
HASHED: Final = "hmac:"
_HASHED_SIZE: Final = len(HASHED) + 43

Secret = bytes | str
KeyProvider = Callable[[str], Secret | None]

faults = FaultLog(logging.getLogger("ratchet.encryption"))


class Keyring:
    """
    A `PayloadCodec`: several keys to read with, one (*active*) to write with.

    *keys* maps ids to keys, or is a function that is given an id and returns the key (None: it has none), for a key
    management service; it is asked once for each key. A key is 32 bytes, or base64 of them. *retired* names keys that are gone and that no
    value has any more: jobs that still ask for one run here. *hash_keys*, a secret of its own, has
    business and idempotency keys stored as HMACs; it must stay the same for as long as jobs are to be found by their keys. *strict*, once
    all values are encrypted: what is in plain text is unreadable, like a value that was changed.
    """

    def __init__(
        self,
        *,
        active: str,
        keys: Mapping[str, Secret] | KeyProvider,
        retired: Collection[str] = (),
        hash_keys: Secret | None = None,
        strict: bool = False,
    ) -> None:
        if not isinstance(strict, bool):
            raise ConfigurationError("strict is True or False")
        #: True: a value in plain text is taken for one that somebody has put there.
        self.refuses_plaintext = strict
        self._active = _checked_id(active)
        self._lock = threading.Lock()
        self._ciphers: dict[str, AESGCM] = {}
        self._absent: dict[str, float] = {}  # ids that the provider does not have: when it was asked
        self._provider: KeyProvider | None = None
        if isinstance(keys, Mapping):
            for key, secret in keys.items():
                self._ciphers[_checked_id(key)] = AESGCM(_key_bytes(secret, f"the key {key!r}"))
            if active not in self._ciphers:
                raise ConfigurationError(
                    f"the active key {active!r} is not among the keys ({', '.join(map(repr, self._ciphers)) or 'none'})"
                )
        elif callable(keys):
            self._provider = keys
            if self._cipher(active) is None:
                raise ConfigurationError(
                    f"the provider of keys has no key {active!r} of 32 bytes, which is to be active"
                )
        else:
            raise ConfigurationError(
                f"keys is a mapping from ids to keys, or a function that returns the key of an id, not a {type(keys).__name__}"
            )
        if isinstance(retired, str):
            raise ConfigurationError("retired is a list of ids of keys")
        self._retired = frozenset(map(_checked_id, retired))
        if both := self._retired & set(self._ciphers):
            raise ConfigurationError(f"the key {min(both)!r} is retired, but it is among the keys")
        self._hash_secret = None if hash_keys is None else _key_bytes(hash_keys, "hash_keys")

    @classmethod
    def from_environment(
        cls,
        name: str = "RATCHET_KEYS",
        *,
        active: str | None = None,
        hash_keys: Secret | None = None,
        strict: bool = False,
    ) -> Keyring:
        """Keys from an environment variable, ``2026-11:<base64>,2026-05:<base64>``; the first is active unless *active* says otherwise."""
        text = os.environ.get(name, "")
        if not text.strip():
            raise ConfigurationError(
                f"the environment variable {name} is not set; it holds id:base64,id:base64"
            )
        return cls._of_pairs(text.split(","), f"the environment variable {name}", active, hash_keys, strict)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        active: str | None = None,
        hash_keys: Secret | None = None,
        strict: bool = False,
    ) -> Keyring:
        """
        Keys from a file, one ``2026-11:<base64>`` on a line; the first is active unless *active* says otherwise.

        The file must belong to the user that runs this process (or to root), and nobody else may read it (mode 0600).
        """
        file = Path(path)
        try:
            with file.open(encoding="utf-8") as opened:
                _require_private(os.fstat(opened.fileno()), file)
                lines = opened.read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the key file {file} cannot be read: {type(error).__name__}") from None
        kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        return cls._of_pairs(kept, f"the key file {file}", active, hash_keys, strict)

    @classmethod
    def _of_pairs(
        cls, pairs: list[str], where: str, active: str | None, hash_keys: Secret | None, strict: bool
    ) -> Keyring:
        keys: dict[str, Secret] = {}
        for number, pair in enumerate(pairs, 1):
            key, colon, secret = pair.strip().partition(":")
            if not colon or not KEY_ID.fullmatch(key.strip()):
                raise ConfigurationError(f"entry {number} of {where} is not of the form id:base64")
            if key.strip() in keys:
                raise ConfigurationError(f"{where} has the key {key.strip()!r} twice")
            keys[key.strip()] = secret.strip()
        if not keys:
            raise ConfigurationError(f"{where} holds no key; write id:base64, one for each key")
        chosen = active if active is not None else next(iter(keys))
        return cls(active=chosen, keys=keys, hash_keys=hash_keys, strict=strict)

    # --- PayloadCodec ---

    def active_key(self) -> str:
        """The id of the key that values are encrypted with."""
        return self._active

    def keys(self) -> Collection[str]:
        """The ids of the keys that are here; of a provider, those that it has given so far."""
        with self._lock:
            return sorted({*self._ciphers, *self._retired})

    def has_key(self, key: str) -> bool:
        """True if values of this key can be decrypted here."""
        return key in self._retired or self._cipher(key) is not None

    def encode(self, value: bytes, key: str, context: bytes) -> bytes:
        """*value*, encrypted: nonce, ciphertext, tag."""
        cipher = self._cipher(key)
        if cipher is None:
            raise MissingKey("a value", (key,))
        nonce = os.urandom(NONCE_SIZE)
        return nonce + cipher.encrypt(nonce, value, context)

    def decode(self, data: bytes, key: str, context: bytes) -> bytes:
        """What was encrypted; `MissingKey` without the key, any other error if it is not what was encrypted for this context."""
        cipher = self._cipher(key)
        if cipher is None:
            if key in self._retired:
                raise UnreadablePayload(f"the key {key!r} is retired")
            raise MissingKey("a value", (key,))
        return cipher.decrypt(data[:NONCE_SIZE], data[NONCE_SIZE:], context)

    def hashed(self, key: str) -> str:
        """An HMAC of *key*, if *hash_keys* was given; what is one already is returned as it is."""
        if self._hash_secret is None or (key.startswith(HASHED) and len(key) == _HASHED_SIZE):
            return key
        digest = hmac.new(self._hash_secret, key.encode(errors="surrogatepass"), hashlib.sha256).digest()
        return HASHED + base64.urlsafe_b64encode(digest).decode().rstrip("=")

    # --- keys ---

    def _cipher(self, key: str) -> AESGCM | None:
        cipher = self._ciphers.get(key)
        if cipher is not None or self._provider is None:
            return cipher
        with self._lock:
            asked = self._absent.get(key)
            if asked is not None and time.monotonic() - asked < ASK_AGAIN:
                return None
        cipher = self._provided(key, self._provider)
        with self._lock:
            if cipher is None:
                self._absent[key] = time.monotonic()
                return None
            self._absent.pop(key, None)
            return self._ciphers.setdefault(key, cipher)

    @staticmethod
    def _provided(key: str, provider: KeyProvider) -> AESGCM | None:
        """The key that the provider gives; None while it has none that can be used: the jobs of this key wait."""
        try:
            secret = provider(key)
            return None if secret is None else AESGCM(_key_bytes(secret, f"the key {key!r}"))
        except LookupError:
            return None  # it says in its own way that it has no such key
        except ConfigurationError as error:
            faults.note(f"the provider of keys gave something else: {error}")
        except Exception as error:
            # It may come back. Its text may hold a key.
            faults.note(f"the provider of keys failed for the key {key!r}: {type(error).__name__}")
        return None

    def __repr__(self) -> str:
        return f"Keyring(active={self._active!r}, keys={list(self.keys())!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Keyring is not pickled: its keys would be written down; make one in each process")


def _checked_id(key: object) -> str:
    if not isinstance(key, str) or not KEY_ID.fullmatch(key):
        raise ConfigurationError(
            f"the id of a key is 1 to 64 letters, digits, dots, dashes and underscores, not {type(key).__name__} "
            f"of another form"
        )
    return key


def _key_bytes(secret: object, name: str) -> bytes:
    """The 32 bytes of a key; no message shows any of it."""
    if isinstance(secret, str):
        try:
            secret = base64.b64decode(secret.strip().replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigurationError(f"{name} is not base64; write 32 bytes as base64") from None
    if not isinstance(secret, (bytes, bytearray)):
        raise ConfigurationError(
            f"{name} is {KEY_SIZE} bytes or base64 of them, not a {type(secret).__name__}"
        )
    if len(secret) != KEY_SIZE:
        raise ConfigurationError(f"{name} has {len(secret)} bytes; AES-256 takes {KEY_SIZE}")
    return bytes(secret)


def _require_private(found: os.stat_result, file: Path) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise ConfigurationError(
            f"the key file {file} can be read or changed by others (mode {mode:04o}); run: chmod 600 {file}"
        )
    if hasattr(os, "geteuid") and found.st_uid not in (0, os.geteuid()):
        raise ConfigurationError(f"the key file {file} belongs to another user; keys from it are not used")
