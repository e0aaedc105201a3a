"""What a dialect's errors become; the driver's exception is always the ``__cause__``."""

from __future__ import annotations

import re

from ratchet.model.errors import Conflict, StoreError, StoreMoved, StoreReadOnly, StoreUnavailable

#: What the message of a change begins with that a fence has refused, whichever product says it.
FENCED = "ratchet-fence: "


class ConstraintViolated(StoreError):
    """A unique, foreign-key, check or NOT NULL constraint refused a row; none of our statements expects one."""


class AccessDenied(StoreError):
    """The role of the connection lacks a right; nothing was done, and nothing will be by trying again."""


class LockTimeout(Conflict):
    """Another transaction held a lock for longer than one of ours waits."""


class ConnectionLost(StoreUnavailable):
    """A connection broke before anything was sent for commit; a new connection may succeed at once."""


class ReadOnlyServer(StoreReadOnly, ConnectionLost):
    """The server answers, but takes no writes; a new connection may reach one that does."""

    def __init__(self, server: str, detail: str, advice: str) -> None:
        self._text = f"{server}{{}} is read-only ({{}}); {advice}", detail
        super().__init__(self._text[0].format("", detail))

    def found_at(self, where: str) -> None:
        """Say which server it is."""
        text, detail = self._text
        self.args = (text.format(f" at {where}", detail),)


def fenced(message: str) -> StoreMoved | None:
    """The error for a message of a fence; None: it is of something else."""
    _, found, reason = message.partition(FENCED)
    return StoreMoved(reason.splitlines()[0]) if found else None


_SECRET = re.compile(r"(?P<head>://[^:/?#\s@]*:)[^@/\s]*(?=@)|(?P<word>\bpassword=)[^\s&'\"]+", re.IGNORECASE)


def redacted(text: str) -> str:
    """*text* without the password of any URL or connection string in it."""
    return _SECRET.sub(lambda match: (match["head"] or match["word"]) + "***", text)
