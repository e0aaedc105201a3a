"""``ratchet check-deploy``: can the new code run every job that waits?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.output import Output
from ratchet.cli.user_app import load_scheduler
from ratchet.model.callbacks import plain_target
from ratchet.model.errors import RatchetError, TargetNotAllowed, TargetNotFound
from ratchet.model.job import JobFilter
from ratchet.model.status import LIVE, JobType
from ratchet.scheduler import Scheduler
from ratchet.scheduler.core import Core

#: Jobs that run no function of the app.
_INTERNAL = frozenset({JobType.BATCH_PARENT})
PAGE = 1000


def check_deploy(
    app: Annotated[
        str,
        typer.Argument(
            help="The scheduler of the new code, as package.module:attribute.", show_default=False
        ),
    ],
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="A module that the new workers import too; may be repeated.",
            show_default=False,
        ),
    ] = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """
    List targets of waiting jobs and schedules that the code of APP cannot run; exit code 1 if there are any.

    Run it with the new code before you replace the old workers: a job whose function is gone is parked until
    a worker that has the function comes back.
    """
    code = load_scheduler(app, str(Path.cwd()))
    core = code.backend
    if isinstance(core, Core):
        core.also_import(imports or ())
        core.import_modules()
    with given.opened(url) as scheduler:
        waiting = Counter(_targets(scheduler))
    missing = {
        target: problem for target in sorted(waiting) if (problem := _problem(code, target)) is not None
    }
    out = Output(as_json=json)
    rows = [(target, waiting[target], problem) for target, problem in missing.items()]
    if json:
        out.document(
            {"checked": len(waiting), "missing": [{"target": t, "jobs": n, "problem": p} for t, n, p in rows]}
        )
    else:
        out.table(("target", "jobs", "problem"), rows, empty=f"all {len(waiting)} targets are known to {app}")
    if missing:
        raise typer.Exit(1)


def _targets(scheduler: Scheduler) -> Iterator[str]:
    where = JobFilter(statuses=sorted(LIVE))
    cursor = None
    while True:
        page = scheduler.jobs.find(where, limit=PAGE, cursor=cursor)
        yield from (job.target for job in page if job.type not in _INTERNAL)
        cursor = page.next_cursor
        if cursor is None:
            break
    yield from (record.spec.target for record in scheduler.store.schedules())


def _problem(code: Scheduler, target: str) -> str | None:
    """Why the new code could not run *target*; None if it could."""
    try:
        code.backend.targets.resolve(plain_target(target))
    except TargetNotFound as error:
        return f"not found: {error}"
    except TargetNotAllowed as error:
        return f"not allowed: {error}"
    except RatchetError as error:
        return str(error)
    return None
