"""Django's task backend on SQLite, PostgreSQL and MySQL: every case that Django's own tests of backends have, and ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_django import KINDS, server_project
from tests.support.django_project import DjangoProject, sqlite_project
from tests.support.task_backend_cases import CASES

RUN = """
from types import SimpleNamespace
from django.utils import timezone
import TASKS_MODULE as package
from TASKS_MODULE import exceptions, signals
from ratchet import BusinessKeyBusy
from ratchet.testing import run_worker_until_idle
from tests.support import task_backend_cases as cases

api = SimpleNamespace(
    task=package.task,
    task_backends=package.task_backends,
    default_task_backend=package.default_task_backend,
    TaskResultStatus=package.TaskResultStatus,
    TaskResultDoesNotExist=exceptions.TaskResultDoesNotExist,
    TaskResultMismatch=exceptions.TaskResultMismatch,
    InvalidTask=getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError,
)
cases.run_all(
    tasks=tasks, api=api, scheduler=scheduler, drain=lambda: run_worker_until_idle(scheduler), timezone=timezone,
    signals=signals, busy=BusinessKeyBusy, orders=Order.objects,
)
"""


@pytest.fixture(params=["sqlite", *KINDS])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> DjangoProject:
    """A project with tasks, on each database that Django and we have in common."""
    if request.param == "sqlite":
        project = sqlite_project(tmp_path)
    else:
        project = server_project(request.param, request, tmp_path)
    project.more_path = [*project.more_path, Path(__file__).parent.parent.parent]
    return project.migrated()


def test_all_cases_pass(project: DjangoProject) -> None:
    """N of n."""
    shown = project.run(RUN)
    assert shown.strip().split("\n")[-1] == f"{len(CASES)} of {len(CASES)}", shown
