"""
What every job does, in whichever library: it says in a file that it starts, works, and says that it ends.

The name of a job says how it works: ``s60-…`` sleeps for 60 s, ``hold10-…`` keeps the interpreter in C code for 10 s,
``die-…`` ends its process. The file is outside of every store, is only appended to, and is what judges.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time


def note(what: str, name: str) -> None:
    """Append one line, in one write."""
    line = f"{what} {name} {time.time():.3f} {os.environ.get('FAULTS_WORKER', '?')} {os.getpid()}\n"
    log = os.open(os.environ["FAULTS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(log, line.encode())
    os.close(log)


def seconds(name: str) -> float:
    """How long the job sleeps; one that holds or dies does not sleep for long."""
    kind = name.split("-")[0]
    return float(kind[1:]) if kind.startswith("s") else 0.5


def hurt(name: str) -> None:
    """Hold the interpreter or end the process, if that is what the job is for."""
    kind = name.split("-")[0]
    if kind.startswith("hold"):
        ctypes.PyDLL(None).sleep(int(kind[4:]))  # PyDLL keeps the interpreter's lock during the call
    elif kind == "die":
        os._exit(9)


def run(name: str) -> None:
    """The job, as a function."""
    note("start", name)
    time.sleep(seconds(name))
    hurt(name)
    note("end", name)


async def arun(name: str) -> None:
    """The job, as a coroutine."""
    note("start", name)
    await asyncio.sleep(seconds(name))
    hurt(name)
    note("end", name)
