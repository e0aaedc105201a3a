"""What systemd says about the service that this worker is, and what it is told: ready, alive, stopping."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Final

logger = logging.getLogger("ratchet.worker")

#: Seconds of systemd's time that a worker keeps for handing back what has not finished, and for its own end.
MARGIN: Final = 5.0
_CGROUP: Final = Path("/proc/self/cgroup")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(y|month|w|d|h|min|s|ms|us)")
_SECONDS: Final = {
    "y": 31_557_600.0, "month": 2_629_800.0, "w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "min": 60.0, "s": 1.0, "ms": 0.001,
    "us": 0.000_001,
}  # fmt: skip


class Notifier:
    """
    Tells systemd how the worker is, if the unit has ``Type=notify``; nobody else is told anything.

    The variables by which systemd asks for it are taken away, so that the processes which run jobs do not answer in its place.
    """

    def __init__(self, address: str, watchdog: float | None, monotonic: Callable[[], float]) -> None:
        # A name that begins with @ is in the kernel's own list, not in the file system.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._every = None if watchdog is None else watchdog / 2
        self._monotonic = monotonic
        self._next = monotonic()
        self._said: set[str] = set()
        self._status = ""

    @classmethod
    def of(
        cls, environ: MutableMapping[str, str] | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> Notifier | None:
        """What the unit asks for; None if it asks for nothing."""
        environment = os.environ if environ is None else environ
        address, watchdog, pid = (
            environment.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        )
        if not address.startswith(("/", "@")):
            return None
        wanted = watchdog.isdecimal() and int(watchdog) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(watchdog) / 1_000_000 if wanted else None, monotonic)

    def ready(self) -> None:
        """The first process runs jobs."""
        self._once("READY=1")

    def stopping(self) -> None:
        """The worker takes no more jobs."""
        self._once("STOPPING=1")

    def alive(self, is_well: bool) -> None:
        """Called by the loop, time and again: the watchdog is fed in time, while all is well."""
        if self._every is not None and is_well and (now := self._monotonic()) >= self._next:
            self._next = now + self._every
            self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for ``systemctl status``."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._send(text)

    def _send(self, text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)  # a systemd that does not read must not stop the worker
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            if "failed" not in self._said:
                self._said.add("failed")
                logger.warning("systemd cannot be told how this worker is: %s", error)


def drain_time(environ: Mapping[str, str] | None = None) -> float | None:
    """
    Seconds that running jobs may take so that systemd does not kill the worker; None where systemd did not start it or does not say.

    It follows ``TimeoutStopSec`` of the unit, which is 90 s if nothing is set there.
    """
    environment = os.environ if environ is None else environ
    unit = _unit() if environment.get("INVOCATION_ID") else None
    if unit is None:
        return None
    name, of_a_user = unit
    seconds = _seconds_of(_asked(name, of_a_user=of_a_user))
    return None if seconds is None else max(seconds - MARGIN, seconds / 2)


def _unit() -> tuple[str, bool] | None:
    """The name of this process's unit, and whether a user's own systemd runs it."""
    try:
        lines = _CGROUP.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        parts = line.rpartition(":")[2].split("/")
        services = [part for part in parts if part.endswith(".service")]
        if (
            services
            and re.fullmatch(r"[A-Za-z0-9:_.@\\-]+", services[-1])
            and not services[-1].startswith(("-", "user@"))
        ):
            return services[-1], any(part.startswith("user@") for part in services[:-1])
    return None


def _asked(unit: str, *, of_a_user: bool) -> str:
    command = [
        "systemctl",
        *(["--user"] if of_a_user else []),
        "show",
        "--property=TimeoutStopUSec",
        "--value",
        "--",
        unit,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2.0, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _seconds_of(text: str) -> float | None:
    """A time as systemd writes it (``1min 30s``); None for ``infinity`` and for anything else."""
    if not text or _PART.sub("", text).strip():
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
