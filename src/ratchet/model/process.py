"""The name of this process, by which nodes and database servers tell whose connection one is."""

from __future__ import annotations

import os
import secrets
import socket

_LONGEST_HOST = 20  # characters: a server keeps 63 or 128 of a name, and it has other parts

_names: dict[int, str] = {}  # a forked process is another one


def process_name() -> str:
    """
    Readable (host and pid), and unique: containers may share both.

    A node writes it in its row. Connections have it too, so that those of a dead process can be ended while a
    transaction of it is still open.
    """
    pid = os.getpid()
    if pid not in _names:
        host = socket.gethostname().encode("ascii", "replace").decode()[:_LONGEST_HOST]
        _names[pid] = f"{host}:{pid}:{secrets.token_hex(4)}"
    return _names[pid]
