"""What systemd says about the service that this worker is: how long it waits before it kills."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: Seconds of systemd's time that a worker keeps for handing back what has not finished, and for its own end.
MARGIN: Final = 5.0
_CGROUP: Final = Path("/proc/self/cgroup")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(y|month|w|d|h|min|s|ms|us)")
_SECONDS: Final = {
    "y": 31_557_600.0, "month": 2_629_800.0, "w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "min": 60.0, "s": 1.0, "ms": 0.001,
    "us": 0.000_001,
}  # fmt: skip


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
