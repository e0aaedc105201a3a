"""A small Django project, written into a folder and used by processes of its own: settings are per process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""

SETTINGS = """
{before}
SECRET_KEY = "for tests"
USE_TZ = True
INSTALLED_APPS = {apps!r}
DATABASES = {databases!r}
TASKS = {{"default": {{"BACKEND": "ratchet.contrib.django.RatchetBackend", "QUEUES": [], "OPTIONS": {{}}}}}}
RATCHET = {ratchet!r}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""

MODELS = """
from django.db import models

class Order(models.Model):
    note = models.CharField(max_length=100)
"""

JOBS = """
from ratchet.contrib.django import scheduler
from shop.models import Order

@scheduler.job
def note(text):
    Order.objects.create(note=text)
    return text

@scheduler.job
async def anote(text):
    await Order.objects.acreate(note=text)
    return text

@scheduler.job(lane="process")
def pnote(text):
    Order.objects.create(note=text)
    return text
"""

TASKS = """
import asyncio
from django_tasks import task
from shop.models import Order

@task()
def add(a, b):
    return a + b

@task(takes_context=True, queue_name="mails", priority=50)
def mail(context, to):
    Order.objects.create(note=f"{to} in attempt {context.attempt}")

@task()
async def later(text):
    await Order.objects.acreate(note=text)
    return text

@task()
def broken():
    raise KeyError("no such thing")

@task()
def unkept():
    return object()
"""


class DjangoProject:
    """The project's folder, and ways to use it."""

    def __init__(self, folder: Path, databases: dict[str, Any], *, before: str = "", **ratchet: Any) -> None:
        self.folder = folder
        apps = ["django.contrib.contenttypes", "shop", "ratchet.contrib.django", "django_tasks"]
        self._write(
            "project/settings.py",
            SETTINGS.format(before=before, apps=apps, databases=databases, ratchet=ratchet),
        )
        self._write("project/__init__.py", "")
        self._write("manage.py", MANAGE)
        for name, text in (("__init__", ""), ("models", MODELS), ("jobs", JOBS), ("tasks", TASKS)):
            self._write(f"shop/{name}.py", text)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """What a process of the project starts with."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET_")}
        return {**kept, "DJANGO_SETTINGS_MODULE": "project.settings", "PYTHONPATH": str(self.folder)}

    def manage(self, *words: str, fails: bool = False) -> str:
        """What ``manage.py`` printed; it must succeed, or fail if *fails*."""
        return self._run([sys.executable, "manage.py", *words], fails=fails)

    def migrated(self) -> DjangoProject:
        """The project itself, once it has its tables."""
        self.manage("migrate", "--run-syncdb", "--verbosity", "0")
        return self

    def run(self, *scripts: str, fails: bool = False) -> str:
        """What *scripts*, in one process, printed; Django is set up, and scheduler, transaction, connection and the app's modules are imported."""
        head = (
            "import django; django.setup()\n"
            "from django.db import connection, connections, transaction\n"
            "from ratchet.contrib.django import scheduler\n"
            "from shop.models import Order\n"
            "from shop import jobs, tasks\n"
        )
        return self._run(
            [sys.executable, "-c", "\n".join([head, *map(textwrap.dedent, scripts)])], fails=fails
        )

    def _run(self, command: list[str], *, fails: bool) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stdout
        return done.stdout

    @contextmanager
    def worker(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """``manage.py ratchet worker``, stopped at the end."""
        log = self.folder / "worker.log"
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "ratchet", "worker", *words],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                yield process
            finally:
                process.terminate()
                process.wait(timeout=60)


def sqlite_project(folder: Path, **more: Any) -> DjangoProject:
    """A project on an SQLite file."""
    entry = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(folder / "shop.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "other.sqlite3")}
    return DjangoProject(folder, {"default": entry, "other": other}, **more)
