"""The messages between a supervisor and its children: one JSON value per line, over two pipes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ratchet.model.options import Options

LINE_LIMIT = 1 << 20


class ChildSettings(Struct, frozen=True, kw_only=True):
    """What a child is told on its command line; nothing in it is secret."""

    status: int  # the file descriptor the child writes to
    control: int  # the file descriptor the child reads from; its end means that the supervisor is gone
    path: str  # where the app is imported from
    store_named: bool = False  # RATCHET_URL was set from --url
    concurrency: int | None = None
    async_concurrency: int | None = None
    process_concurrency: int | None = None
    queues: list[str] | None = None
    imports: list[str] = []
    drain_timeout: float | None = None
    default_drain: float | None = None  # where neither the command line nor the app says
    log_level: str = "INFO"
    log_json: bool = False
    verbose: bool = False
    max_jobs: int | None = None  # it asks to be replaced after so many runs
    max_memory: int | None = None  # and when it holds more than so many bytes
    metrics: str | None = None  # the folder for snapshots of the metrics; None: nothing is measured
    dump: int | None = (
        None  # the file descriptor to which the stacks of all threads are written if it is killed
    )
    started: int | None = None  # the one of the memory in which the child writes what runs (`StartedRuns`)

    @property
    def descriptors(self) -> list[int]:
        """What the child inherits."""
        given = (self.status, self.control, self.dump, self.started)
        return [descriptor for descriptor in given if descriptor is not None]


# --- from the child


class Ready(Struct, frozen=True, kw_only=True, tag=True):
    """The node is registered and takes jobs. The pipe is private, so the URL may hold a password."""

    node_id: str
    url: str
    options: dict[str, Any]
    heartbeat: float
    drain_timeout: float
    slots: dict[str, int] = {}  # how many jobs may run at once, by lane
    shared: bool = True  # the store can be reached from another process


class Pulse(Struct, frozen=True, kw_only=True, tag=True):
    """
    A sign of life: the child can run Python.

    ``overdue``: how many seconds its poll loop is late. ``dead``: the lanes that will run nothing any more, and why;
    ``claims_fail``: it cannot claim now, because its database is away, for instance. ``drained``: somebody has asked
    it to take no jobs. ``spent``: why it should be replaced.
    """

    node_id: str
    overdue: float = 0.0
    dead: dict[str, str] = {}
    claims_fail: bool = False
    drained: bool = False
    spent: str | None = None


class Failed(Struct, frozen=True, kw_only=True, tag=True):
    """The child cannot start. ``passing``: it may succeed later, because the database is away."""

    message: str
    passing: bool = False


class Leaving(Struct, frozen=True, kw_only=True, tag=True):
    """The child takes no more jobs and will end; it should be replaced now, unless somebody has stopped its node for good."""

    reason: str
    replace: bool = True


# --- from the supervisor


class Drain(Struct, frozen=True, kw_only=True, tag=True):
    """
    Take no more jobs, let running jobs finish, then end.

    ``timeout`` None: within the drain time. ``unhurried``: however long that takes, until another `Drain` comes.
    """

    timeout: float | None = None
    unhurried: bool = False


class Quit(Struct, frozen=True, kw_only=True, tag=True):
    """Hand back all jobs and end at once."""


class RescueNode(Struct, frozen=True, kw_only=True, tag=True):
    """
    The process of this node has certainly ended: requeue its jobs without waiting for its silence.

    ``seen`` is how it ended, ``started`` the numbers of the runs that it had begun, in hex; None: not known.
    """

    node_id: str
    seen: str | None = None
    started: list[str] | None = None


class WakeOthers(Struct, frozen=True, kw_only=True, tag=True):
    """Jobs of a process that was killed were handed back: wake this node and all others."""


Report: TypeAlias = Ready | Pulse | Failed | Leaving
Command: TypeAlias = Drain | Quit | RescueNode | WakeOthers

_reports = msgspec.json.Decoder(Report)
_commands = msgspec.json.Decoder(Command)


def encoded(message: Report | Command) -> bytes:
    """*message* as one line."""
    return msgspec.json.encode(message) + b"\n"


def decode_report(line: bytes) -> Report:
    """What a child said."""
    report: Report = _reports.decode(line)
    return report


def decode_command(line: bytes) -> Command:
    """What the supervisor said."""
    command: Command = _commands.decode(line)
    return command


class LineReader:
    """Reads complete lines from a file descriptor without blocking; ``ended`` once the other side is gone."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""
        self.ended = False

    def lines(self) -> Iterator[bytes]:
        """Every line that has arrived since the last call."""
        while not self.ended:
            try:
                chunk = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if not chunk:
                self.ended = True
                return
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            if len(self._rest) > LINE_LIMIT:
                self._rest = b""
            yield from lines


def given_options(options: Options) -> dict[str, Any]:
    """The options that were set, as values that JSON can hold and `Options` accepts."""
    given = {name: getattr(options, name) for name in sorted(options.given)}
    return {
        name: value.total_seconds() if hasattr(value, "total_seconds") else value
        for name, value in given.items()
    }
