"""Long work in pieces, with a bar on stderr for people."""

from __future__ import annotations

from collections.abc import Callable

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ratchet.cli.output import console

CHUNK = 250


def in_chunks(what: str, total: int, step: Callable[[int], int], *, quiet: bool = False) -> int:
    """
    Call *step* with a number of things to do until it has done *total* or finds no more; how many were done.

    Never more than *total*: a job that was retried may fail again at once and would match forever.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    done = 0
    with Progress(
        *columns, console=console(stderr=True), transient=True, disable=quiet or total <= CHUNK
    ) as bar:
        task = bar.add_task(what, total=total)
        while done < total:
            some = step(min(CHUNK, total - done))
            if some <= 0:
                break
            done += some
            bar.update(task, completed=done)
    return done
