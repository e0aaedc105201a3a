"""The name of a process, by which a database server knows whose connection one is."""

from __future__ import annotations

import hashlib
import os
import socket

_LONGEST = 40  # characters: PostgreSQL keeps 63 of a name, MongoDB 128, and there are other words in it


def process_name(host: str | None = None, pid: int | None = None) -> str:
    """
    The process *pid* of *host*, as a node's row has them; without them, this one.

    A connection that bears it can be ended when the process is dead and its transaction is still open.
    """
    name = f"{host or socket.gethostname()}:{pid or os.getpid()}"
    return (
        name
        if len(name) <= _LONGEST and name.isascii()
        else hashlib.sha256(name.encode()).hexdigest()[:_LONGEST]
    )
