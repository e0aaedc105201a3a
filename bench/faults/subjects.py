"""Who is hurt: how each library is installed, set up, given jobs and started."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.environments import cache

HERE = Path(__file__).parent
GRAPHILE = "graphile-worker@0.17.3"
REDIS = ("celery", "dramatiq", "huey")
#: The worker's command; the first word is a program of the subject's own environment.
WORKERS = {
    "ratchet": ["ratchet", "worker", "app:scheduler", "--concurrency", "10"],
    "pgqueuer": ["python", "app.py", "work"],
    "procrastinate": ["procrastinate", "--app", "app.app", "worker", "--concurrency", "10"],
    "oban": ["oban", "start", "--queues", "default:10"],
    "chancy": ["chancy", "--app", "app.chancy", "worker", "start"],
    "celery": ["celery", "-A", "app", "worker", "--concurrency", "10", "-n", "{worker}@%h"],
    "dramatiq": ["dramatiq", "app", "--processes", "1", "--threads", "10"],
    "huey": ["huey_consumer", "app.huey", "-w", "10"],
    "graphile": ["node", "app.mjs", "work"],
}


@dataclass(frozen=True)
class Subject:
    """A library that is installed and can be started."""

    name: str
    programs: Path | None
    versions: str

    @property
    def folder(self) -> Path:
        """Where its script is."""
        return HERE / "peers" / self.name

    def _program(self, name: str) -> str:
        return name if self.programs is None else str(self.programs / name)

    def worker(self, worker: str) -> list[str]:
        """The command of a worker."""
        program, *rest = WORKERS[self.name]
        return [self._program(program), *(word.format(worker=worker) for word in rest)]

    def script(self, *words: str) -> list[str]:
        """The script with a verb: ``setup`` or ``put``."""
        if self.name == "oban" and words[0] == "setup":
            return [self._program("oban"), "install"]
        if self.name == "graphile":
            return ["node", "app.mjs", *words]
        return [self._program("python"), "app.py", *words]


def subject(name: str) -> Subject:
    """The subject *name*, installed if it is missing."""
    if name == "ratchet":
        from ratchet import __version__

        return Subject(name, Path(sys.executable).parent, f"ratchet {__version__} and later changes")
    if name == "graphile":
        _modules()
        return Subject(name, None, GRAPHILE)
    wanted = HERE / "peers" / name / "requirements.txt"
    environment = cache() / f"faults-{name}-{hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]}"
    if not (environment / "complete").exists():
        python = os.environ.get("PYTHON312", "python3.12") if name == "oban" else sys.executable
        subprocess.run([python, "-m", "venv", "--clear", str(environment)], check=True)
        install = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(wanted)]
        subprocess.run(install, check=True)
        (environment / "complete").touch()
    return Subject(name, environment / "bin", " ".join(wanted.read_text().split()))


def modules() -> Path:
    """Where npm has put graphile-worker."""
    return HERE.parents[1] / "build" / "graphile"


def _modules() -> None:
    if not (modules() / "node_modules" / "graphile-worker").exists():
        npm = shutil.which("npm") or "npm"
        command = [
            npm,
            "install",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--prefix",
            str(modules()),
            GRAPHILE,
        ]
        subprocess.run(command, check=True)
