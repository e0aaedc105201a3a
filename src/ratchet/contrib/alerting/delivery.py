"""What a door for alerts brings: a way to send one message, and errors that say nothing secret."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ratchet.contrib.alerting.messages import Message
from ratchet.model.errors import do_not_retry

#: Characters of what a receiver said that are kept.
MOST_SAID = 200
HIDDEN = "•••"


class DeliveryFailed(Exception):
    """The receiver did not take a message; it is sent again later."""


@do_not_retry("the receiver refused the message")
class DeliveryRefused(DeliveryFailed):
    """The receiver has said that it will never take this message: sending it again would not help."""


class Transport(Protocol):
    """Sends messages to one destination."""

    def send(self, message: Message) -> None:
        """
        Hand *message* to the receiver; `DeliveryFailed` if it did not take it.

        What is raised is stored and logged: it names neither the address nor a secret.
        """
        ...


def without(secrets: Iterable[str | None], text: str) -> str:
    """*text* on one line, cut, and without any of *secrets*."""
    for secret in sorted({one for one in secrets if one}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= MOST_SAID else f"{line[: MOST_SAID - 1]}…"
