"""A medium: what carries a message from one process to all others, with a `Sender` and a `Receiver`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class CannotListen(Exception):
    """The medium cannot deliver to this connection, and trying again will not help; the message says what to change."""


class Sender(Protocol):
    """One connection, used by one thread at a time, that sends to all receivers."""

    def send(self) -> None:
        """Tell all receivers that there is new work. Any exception: the connection is not used again."""
        ...

    def close(self) -> None:
        """Free the connection; never raises."""
        ...


@runtime_checkable
class Poster(Sender, Protocol):
    """
    A sender that can split a round trip: the thread that submits posts the message, another one reads the answer.

    On an idle system that saves the time that a sleeping thread takes to wake up.
    """

    def post(self) -> None:
        """Send the message without waiting for the answer. Nobody else uses the connection at that time."""
        ...

    def collect(self) -> None:
        """Wait for the answer to what was posted. Any exception: the connection is not used again."""
        ...


class Receiver(Protocol):
    """One connection, used by one thread, that hears what others send."""

    def wait(self) -> bool:
        """
        True if another process has sent a message; False after a while without one, or after `interrupt`.

        Any exception: the connection is lost, also when it has only gone silent. `CannotListen`: listening ends for good.
        """
        ...

    def interrupt(self) -> None:
        """Let a `wait` of another thread end soon."""
        ...

    def close(self) -> None:
        """Free the connection; never raises."""
        ...


class Medium(Protocol):
    """Connects senders and receivers, in bounded time. A process need not receive its own messages."""

    def sender(self) -> Sender:
        """A new connection to send on."""
        ...

    def receiver(self) -> Receiver:
        """A new connection that hears everything sent from now on; `CannotListen` where that is impossible."""
        ...
