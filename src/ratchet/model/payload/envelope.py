"""
Envelopes: how a value that a codec has encoded stands in the store.

It is JSON of the tag ``sealed``: ``{"$":"sealed","k":"2026-11","v":"<base64>"}``. Nothing that is encoded without a codec looks
like this, so values of both kinds can stand side by side, and a process without the key can say which one it lacks.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Final

from ..errors import MissingKey, UnreadablePayload

#: The tag of an envelope.
SEALED: Final = "sealed"
#: What the id of a key may be: it stands in envelopes, in messages and in the places of jobs (`ratchet.model.places`).
KEY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_BEGIN: Final = '{"$":"sealed","k":"'
_MIDDLE: Final = '","v":"'
_END: Final = '"}'


def envelope(key: str, data: bytes) -> str:
    """What *data*, encoded with *key*, is stored as."""
    return f"{_BEGIN}{key}{_MIDDLE}{b64encode(data).decode('ascii')}{_END}"


def is_sealed(text: str) -> bool:
    """True for an envelope, also for a damaged one."""
    return text.startswith(_BEGIN)


def sealing_key(text: str | None) -> str | None:
    """The id of the key in an envelope; None for any other text. Of a damaged one it is what stands there."""
    if text is None or not text.startswith(_BEGIN):
        return None
    return text[len(_BEGIN) :].partition('"')[0][:64]


def take_out(text: str) -> tuple[str, bytes]:
    """The key and the data of an envelope; `UnreadablePayload` if it is damaged."""
    key, middle, rest = text[len(_BEGIN) :].partition(_MIDDLE)
    if not middle or not rest.endswith(_END) or not KEY_ID.fullmatch(key):
        raise UnreadablePayload("its envelope is damaged")
    try:
        return key, b64decode(rest[: -len(_END)], validate=True)
    except (NotBase64, ValueError):
        raise UnreadablePayload("its envelope is damaged") from None


def refuse_sealed(text: str, name: str) -> None:
    """`MissingKey` if *text* is an envelope: whoever reads it here has no codec, or not this key."""
    key = sealing_key(text)
    if key is not None:
        raise MissingKey(name, (key,))
