from __future__ import annotations

from typing import Protocol


class ErrorSanitizer(Protocol):
    """
    Removes secrets from what a failing job says, before it is stored or published.

    Both methods never raise, whatever the error or the text is made of, and applying them to
    their own output changes nothing. The result holds no U+0000 and no lone surrogate, so every
    store can keep it. Where ``sanitize`` fails all the same, the name of the error's class is stored; without
    ``sanitize_text``, the stock sanitizer's is used.
    """

    def sanitize(self, error: BaseException) -> str:
        """The message to store for *error*: its class name, then what it said, without secrets."""
        ...

    def sanitize_text(self, text: str) -> str:
        """*text* (a traceback, a log line) without secrets."""
        ...
