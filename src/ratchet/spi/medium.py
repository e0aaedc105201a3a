"""A medium: what carries a message from one process to all others. It brings a `Sender` and a `Receiver`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class CannotListen(Exception):
    """The medium delivers nothing to a connection like ours, and will not tomorrow; the message says what to change."""


class Sender(Protocol):
    """One connection, used by one thread at a time, that tells everybody."""

    def send(self) -> None:
        """Tell all receivers that there is new work. Any exception: the connection is not used again."""
        ...

    def close(self) -> None:
        """Free the connection; never raises."""
        ...


@runtime_checkable
class Poster(Sender, Protocol):
    """
    A sender that can do with less than a round trip: the thread that submits posts, another one reads the answer.

    On an idle system that saves the time until a thread has woken up.
    """

    def post(self) -> None:
        """Put the message on its way, without waiting for anything; whoever else is using the connection has ended."""
        ...

    def collect(self) -> None:
        """Wait for the answer to what was posted. Any exception: the connection is not used again."""
        ...


class Receiver(Protocol):
    """One connection, used by one thread, that hears what others send."""

    def wait(self) -> bool:
        """
        True if somebody else has sent something; False after a while without, or after `interrupt`.

        Any exception: the connection is lost, also when it has merely gone silent. `CannotListen` ends it all.
        """
        ...

    def interrupt(self) -> None:
        """Let a `wait` of another thread end soon."""
        ...

    def close(self) -> None:
        """Free the connection; never raises."""
        ...


class Medium(Protocol):
    """Connects senders and receivers, in bounded time; its own messages need not be heard by a process itself."""

    def sender(self) -> Sender:
        """A new connection to send on."""
        ...

    def receiver(self) -> Receiver:
        """A new connection that hears everything sent from now on; `CannotListen` where that is impossible."""
        ...
