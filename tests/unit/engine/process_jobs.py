"""Targets for the process lane: importable by a spawned child."""

from __future__ import annotations

import os
import signal
import threading


def process_id() -> int:
    return os.getpid()


def die_if_told(told: bool) -> str:
    if told:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def spin() -> None:
    while True:
        pass


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("cannot travel")
        self.lock = threading.Lock()


def raise_unpicklable() -> None:
    raise Unpicklable
