"""
Ends a server when the process that started it is gone, in whatever way it went.

Reads standard input, whose other end only the starter holds. The word "free" means that the starter
has ended the server itself; end of file without it means that the starter died.
"""

import os
import shutil
import signal
import sys
from pathlib import Path


def end_postmaster(data: Path) -> None:
    """Patroni gives its PostgreSQL a session of its own, where the signal for the server's group does not reach it."""
    try:
        postmaster = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        if (
            Path(f"/proc/{postmaster}/cwd").resolve() == data.resolve()
        ):  # and not another process of this number
            os.kill(postmaster, signal.SIGKILL)
    except (OSError, ValueError):
        pass  # there is none


if __name__ == "__main__":
    pid, directory = int(sys.argv[1]), sys.argv[2]
    if sys.stdin.buffer.read() != b"free":
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended before its starter
        end_postmaster(Path(directory) / "data")
        shutil.rmtree(directory, ignore_errors=True)
