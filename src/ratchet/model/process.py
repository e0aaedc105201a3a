"""The name of this process, by which nodes and database servers know whose connection one is."""

from __future__ import annotations

import os
import secrets
import socket

_LONGEST_HOST = 20  # characters: PostgreSQL keeps 63 of a name, MongoDB 128, and there are other words in it

_names: dict[int, str] = {}  # a forked process is another one


def process_name() -> str:
    """
    Readable (host and pid), and unlike that of any other process: containers may share both.

    A node tells it in its row. A connection that bears it can be ended when the process is dead and its
    transaction is still open.
    """
    pid = os.getpid()
    if pid not in _names:
        host = socket.gethostname().encode("ascii", "replace").decode()[:_LONGEST_HOST]
        _names[pid] = f"{host}:{pid}:{secrets.token_hex(4)}"
    return _names[pid]
