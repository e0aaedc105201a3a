"""Who is hurt: how each library is installed, set up, given jobs, started and stopped."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
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
#: The same libraries with settings that their docs describe but do not set for everybody: whose script it is, and what the script reads.
VARIANTS = {
    "celery-60": ("celery", {"FAULTS_VARIANT": "60"}),
    "huey-int": ("huey", {}),
}
#: How each is told to stop, if not with SIGTERM.
STOPPED_WITH = {"huey-int": signal.SIGINT}
#: What is set, and where the docs of the library say so. The words go into the docs.
SETTINGS = {
    "ratchet": ("nothing but the number of slots", "../how-to/workers.md"),
    "pgqueuer": (
        "heartbeat timeout 30 s (its default), shutdown when the listener fails",
        "https://github.com/janbjorge/pgqueuer/blob/main/docs/guides/deployment.md",
    ),
    "procrastinate": (
        "the periodic task that retries stalled jobs, every minute (its docs: every ten)",
        "https://procrastinate.readthedocs.io/en/stable/howto/production/retry_stalled_jobs.html",
    ),
    "oban": (
        "its command with defaults: rescue every 60 s of what runs for more than 300 s",
        "https://github.com/oban-bg/oban-py/blob/main/docs/production.md",
    ),
    "chancy": (
        "default plugins: recovery every 60 s, heartbeat timeout 90 s",
        "https://tkte.ch/chancy/chancy.plugins.recovery.html",
    ),
    "celery": (
        "Redis; late acknowledgement, no prefetching; visibility timeout one hour (its default)",
        "https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/redis.html",
    ),
    "celery-60": (
        "as celery, with a visibility timeout of 60 s and rejection when a child is lost",
        "https://docs.celeryq.dev/en/stable/userguide/configuration.html",
    ),
    "dramatiq": (
        "Redis; heartbeat timeout 60 s (its default)",
        "https://dramatiq.io/advanced.html",
    ),
    "huey": (
        "Redis; interrupted tasks are put back by a signal handler",
        "https://huey.readthedocs.io/en/latest/deployment.html",
    ),
    "huey-int": (
        "as huey, and stopped with SIGINT, as its docs advise",
        "https://huey.readthedocs.io/en/latest/deployment.html",
    ),
    "graphile": (
        "defaults: locks last four hours",
        "https://worker.graphile.org/docs/error-handling",
    ),
}


@dataclass(frozen=True)
class Subject:
    """A library that is installed and can be started."""

    name: str
    programs: Path | None
    versions: str

    @property
    def base(self) -> str:
        """The library, of which this may be a variant."""
        return VARIANTS[self.name][0] if self.name in VARIANTS else self.name

    @property
    def settings(self) -> dict[str, str]:
        """What its script reads from the environment."""
        return VARIANTS[self.name][1] if self.name in VARIANTS else {}

    @property
    def stop_signal(self) -> signal.Signals:
        """What tells a worker to stop."""
        return STOPPED_WITH.get(self.name, signal.SIGTERM)

    @property
    def folder(self) -> Path:
        """Where its script is."""
        return HERE / "peers" / self.base

    def _program(self, name: str) -> str:
        return name if self.programs is None else str(self.programs / name)

    def worker(self, worker: str) -> list[str]:
        """The command of a worker."""
        program, *rest = WORKERS[self.base]
        return [self._program(program), *(word.format(worker=worker) for word in rest)]

    def script(self, *words: str) -> list[str]:
        """The script with a verb: ``setup`` or ``put``."""
        if self.base == "oban" and words[0] == "setup":
            return [self._program("oban"), "install"]
        if self.base == "graphile":
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
    base = VARIANTS[name][0] if name in VARIANTS else name
    wanted = HERE / "peers" / base / "requirements.txt"
    environment = cache() / f"faults-{base}-{hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]}"
    if not (environment / "complete").exists():
        python = os.environ.get("PYTHON312", "python3.12") if base == "oban" else sys.executable
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
