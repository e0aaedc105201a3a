"""One text on its way through the codec."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from uuid import UUID

from ratchet.model.errors import MissingKey, UnreadablePayload, UnstorableData
from ratchet.model.payload.envelope import KEY_ID, envelope, is_sealed, take_out
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.payload_codec import PayloadCodec

faults = FaultLog(logging.getLogger("ratchet.parts"))

#: What is kept of a text for people (an error, a log line) that the codec could not encode.
NOT_KEPT = "(the codec could not encode this text, so it was not kept)"


def of_job(job_id: UUID, field: str) -> bytes:
    """The context of a value of one job."""
    return f"job:{job_id.hex}:{field}".encode()


def of_log_line(job_id: UUID, attempt: int, at: datetime) -> bytes:
    """The context of a log line: neither another job nor another moment."""
    return f"job:{job_id.hex}:log:{attempt}:{at.astimezone(UTC).isoformat(timespec='microseconds')}".encode()


def of_schedule(name: str, field: str) -> bytes:
    """The context of what the runs of a schedule get."""
    return f"schedule:{field}:{name}".encode()


def of_signal(key: str, field: str) -> bytes:
    """The context of a signal; it is copied to each job that it releases, so it belongs to no job."""
    return f"signal:{field}:{key}".encode()


def of_audit(entry_id: UUID) -> bytes:
    """The context of the reason in an entry of the audit log."""
    return f"audit:{entry_id.hex}:reason".encode()


def of_edge(parent_id: UUID, child_id: UUID) -> bytes:
    """The context of the argument of a condition."""
    return f"edge:{parent_id.hex}:{child_id.hex}:argument".encode()


class Seals:
    """
    Seals and opens single texts. Whatever the codec raises or returns, nothing leaves here in plain text by mistake.

    Without a codec nothing is sealed, and nothing that is sealed can be opened: it says which key it has.
    """

    def __init__(self, codec: PayloadCodec | None) -> None:
        self.codec = codec
        #: What code gets has to be sealed. Texts for people need not be: a store itself says that a job has crashed, or expired.
        self.is_strict = getattr(codec, "refuses_plaintext", False) is True

    def seal(self, text: str, context: bytes, *, errors: str = "strict") -> str:
        """*text* as it is stored; `UnstorableData` if the codec fails."""
        if self.codec is None:
            return text
        try:
            key = self.codec.active_key()
            data = self.codec.encode(text.encode(errors=errors), key, context)
            if isinstance(data, bytes) and isinstance(key, str) and KEY_ID.fullmatch(key):
                return envelope(key, data)
            fault: BaseException = TypeError("it returned no bytes, or its active key has no valid id")
        except BaseException as error:
            _leave_to_the_user(error)
            fault = error
        # Only the kind of error: its text may hold the value, or a key.
        name = type(fault).__name__
        faults.note(f"PayloadCodec.encode() failed: {name}")
        raise UnstorableData(
            f"the codec could not encode a value ({name}), and nothing is stored without it"
        ) from None

    def keep(self, text: str, context: bytes) -> str:
        """`seal` for a text that a run's end must not depend on."""
        try:
            return self.seal(text, context, errors="replace")
        except UnstorableData:
            return NOT_KEPT

    def takes_as_it_stands(self, text: str) -> bool:
        """True for a text that was never sealed, if that is permitted."""
        return not self.is_strict and not is_sealed(text)

    def open(self, text: str, context: bytes) -> str:
        """
        What was sealed; a text that never was is returned as it stands, unless the codec refuses these.

        `MissingKey`, or `UnreadablePayload` if it is damaged, or was stored for another job or field.
        """
        if not is_sealed(text):
            if self.is_strict:
                raise UnreadablePayload(
                    "it is in plain text, and the codec of this process takes encrypted values only"
                )
            return text
        key, data = take_out(text)
        if self.codec is None:
            raise MissingKey("a value", (key,))
        try:
            value = self.codec.decode(data, key, context)
            if isinstance(value, bytes):
                return value.decode()
        except MissingKey:
            raise MissingKey("a value", (key,)) from None
        except BaseException:
            # Its text may hold anything; what matters is that nothing came out.
            pass
        raise UnreadablePayload(
            f"it does not decrypt with the key {key!r}: it was changed, or belongs to another job or field"
        )

    def show(self, text: str, context: bytes) -> str:
        """`open` for a text that people read: what cannot be opened says so."""
        if not is_sealed(text):
            return text
        try:
            return self.open(text, context)
        except UnreadablePayload as error:
            return f"({why(error)})"

    def hashed(self, key: str) -> str:
        """What is stored of a business or idempotency key; `UnstorableData` if the codec fails."""
        if self.codec is None:
            return key
        try:
            found = self.codec.hashed(key)
            if isinstance(found, str) and 0 < len(found) <= 255:
                return found
            name = "it returned no text of 1 to 255 characters"
        except BaseException as error:
            _leave_to_the_user(error)
            name = type(error).__name__
        faults.note(f"PayloadCodec.hashed() failed: {name}")
        raise UnstorableData(f"the codec could not hash a key ({name}), and it is not stored without that")


def _leave_to_the_user(error: BaseException) -> None:
    """Ctrl-C ends a program, also while it submits; in a thread of ours nobody can have pressed it."""
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


def why(error: UnreadablePayload) -> str:
    """What is said in the place of a value that cannot be opened."""
    if isinstance(error, MissingKey) and error.keys:
        return f"encrypted with the key {', '.join(map(repr, error.keys))}, which this process does not have"
    return f"unreadable: {error}"
