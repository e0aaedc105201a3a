"""A small Django project, written into a folder and used by processes of its own: settings are per process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
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
ROOT_URLCONF = "project.urls"
ALLOWED_HOSTS = ["*"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {{"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]}},
}}]
DATABASES = {databases!r}
TASKS = {{"default": {{"BACKEND": "ratchet.contrib.django.RatchetBackend", "QUEUES": [], "OPTIONS": {{}}}}}}
RATCHET = {ratchet!r}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""

URLS = """
from django.apps import apps
from django.urls import path

urlpatterns = []
if apps.is_installed("django.contrib.admin"):
    from django.contrib import admin
    urlpatterns = [path("admin/", admin.site.urls)]
"""

#: Django 6 has tasks of its own; before that there is a package.
DJANGO_TASKS = find_spec("django.tasks") is not None
TASKS_MODULE = "django.tasks" if DJANGO_TASKS else "django_tasks"
ADMIN = ["django.contrib.auth", "django.contrib.sessions", "django.contrib.messages", "django.contrib.admin"]

MODELS = """
from django.db import models

class Order(models.Model):
    note = models.CharField(max_length=100)
"""

JOBS = """
import os
import time
from pathlib import Path
from django.db import transaction
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

@scheduler.job
def waits(folder):
    "Say who runs it, inside of an open block, and wait for a file."
    with transaction.atomic():
        Order.objects.create(note="effect")
        running = Path(folder, f"running-{os.getpid()}")
        running.touch()
        while not Path(folder, "go").exists():
            time.sleep(0.02)

@scheduler.job(lane="process")
def pnote(text):
    Order.objects.create(note=text)
    return text
"""

TASKS = """
import asyncio
from TASKS_MODULE import task
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

@task()
def leaves():
    raise SystemExit("This Task leaves")

@task()
def nested_error():
    raise ValueError(ValueError("the inner one"))

@task(takes_context=True)
def who(context):
    return [context.task_result.id, context.attempt]

def flaky(context):
    if context.attempt < 3:
        raise KeyError("not yet")
    return "third time"

try:
    flaky = task(takes_context=True, max_retries=2)(flaky)
except TypeError:  # Django 6.0 has no extra arguments there
    flaky = task(takes_context=True)(flaky).using(max_retries=2)
"""


class DjangoProject:
    """The project's folder, and ways to use it."""

    #: More folders to import from.
    more_path: Sequence[Path] = ()

    def __init__(
        self,
        folder: Path,
        databases: dict[str, Any],
        *,
        before: str = "",
        admin: bool = False,
        **ratchet: Any,
    ) -> None:
        self.folder = folder
        apps = ["django.contrib.contenttypes", *(ADMIN if admin else ()), "shop", "ratchet.contrib.django"]
        if not DJANGO_TASKS:
            apps.append("django_tasks")
        self._write(
            "project/settings.py",
            SETTINGS.format(before=before, apps=apps, databases=databases, ratchet=ratchet),
        )
        self._write("project/__init__.py", "")
        self._write("project/urls.py", URLS)
        self._write("manage.py", MANAGE)
        for name, text in (("__init__", ""), ("models", MODELS), ("jobs", JOBS), ("tasks", TASKS)):
            self._write(f"shop/{name}.py", text)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).replace("TASKS_MODULE", TASKS_MODULE), encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """What a process of the project starts with."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET_")}
        path = os.pathsep.join([str(self.folder), *map(str, self.more_path)])
        return {**kept, "DJANGO_SETTINGS_MODULE": "project.settings", "PYTHONPATH": path}

    def manage(self, *words: str, fails: bool = False) -> str:
        """What ``manage.py`` printed; it must succeed, or fail if *fails*."""
        return self._run([sys.executable, "manage.py", *words], fails=fails)

    def python(self, *words: str) -> str:
        """What ``python`` printed, in the folder of the project."""
        return self._run([sys.executable, *words], fails=False)

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
            [
                sys.executable,
                "-c",
                "\n".join([head, *map(textwrap.dedent, scripts)]).replace("TASKS_MODULE", TASKS_MODULE),
            ],
            fails=fails,
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
