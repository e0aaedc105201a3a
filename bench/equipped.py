"""Ratchet with one more part than usual (meters, tracing, encryption), so that the part's price is measured beside it."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from typing import Any, Final

from bench.conversation import Contender, ratchet
from bench.protocol import serve
from bench.subject import Ratchet


def _measured(subject: Ratchet) -> None:
    from prometheus_client import CollectorRegistry

    from ratchet.contrib.prometheus import instrument

    instrument(subject.scheduler, registry=CollectorRegistry())


def _traced(subject: Ratchet) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    from ratchet.contrib.opentelemetry import instrument

    instrument(subject.scheduler, tracer_provider=TracerProvider(), meter_provider=MeterProvider())


def _keyring() -> dict[str, Any]:
    from ratchet.contrib.encryption import Keyring

    return {"codec": Keyring(active="bench", keys={"bench": base64.b64encode(bytes(32)).decode()})}


#: What is done to the subject once it is made, and what its scheduler is made with.
PARTS: Final[dict[str, tuple[Callable[[Ratchet], None], Callable[[], dict[str, Any]]]]] = {
    "prometheus": (_measured, dict),
    "opentelemetry": (_traced, dict),
    "encryption": (lambda subject: None, _keyring),
}


def equipped(part: str) -> Contender:
    """Ratchet with *part*, as a contender."""
    return ratchet("bench.equipped", part, name=f"ratchet+{part}")


class Equipped(Ratchet):
    """The scheduler with the part that the command line names."""

    def __init__(self, url: str) -> None:
        equip, parts = PARTS[sys.argv[2]]
        super().__init__(url, **parts())
        equip(self)


if __name__ == "__main__":
    sys.argv[1:] = reversed(sys.argv[1:])  # the part stands before the address
    serve(Equipped)
