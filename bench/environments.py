"""Peers in environments of their own, made when they are asked for and kept in a cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from bench.conversation import Contender

PEERS = Path(__file__).parent / "peers"
#: What each peer can be measured on, and whether it has an await face.
KNOWN = {
    "pgqueuer": (["postgresql"], True),
    "procrastinate": (["postgresql"], True),
    "huey": (["sqlite"], False),
}


def cache() -> Path:
    """Where environments are kept."""
    given = os.environ.get("RATCHET_BENCH_CACHE")
    base = (
        Path(given)
        if given
        else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ratchet-bench"
    )
    base.mkdir(parents=True, exist_ok=True)
    return base


def peer(name: str) -> Contender:
    """The peer *name*; its environment is made if it is missing or its versions have changed."""
    stores, awaits = KNOWN[name]
    folder = PEERS / name
    wanted = (folder / "requirements.txt").read_bytes()
    environment = cache() / f"{name}-{hashlib.sha256(wanted).hexdigest()[:12]}"
    python = environment / "bin" / "python"
    if not (environment / "complete").exists():
        print(f"installing {name} into {environment}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*install, "-r", str(folder / "requirements.txt")], check=True)
        (environment / "complete").touch()
    return Contender(name, [str(python), str(folder / "subject.py")], stores, awaits=awaits)
