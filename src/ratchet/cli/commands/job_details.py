"""One job and its runs, as ``ratchet jobs show`` prints them for people."""

from __future__ import annotations

from ratchet.cli.output import Output
from ratchet.model.job import Execution, Job
from ratchet.model.status import JobStatus


def show_job(out: Output, job: Job) -> None:
    """What the job is."""
    progress = job.progress
    arguments = [*(repr(value) for value in job.args), *(f"{k}={v!r}" for k, v in job.kwargs.items())]
    out.details(
        {
            "id": job.id,
            "status": job.status,
            "call": f"{job.target}({', '.join(arguments)})",
            "type": job.type,
            "priority": job.priority,
            "queue": job.queue,
            "lane": job.lane.value,
            "tags": job.tags,
            "params": job.params,
            "created": job.created_at,
            "due": job.scheduled_at,
            "started": job.started_at,
            "finished": job.finished_at,
            "expires": job.expires_at,
            "attempts": f"{job.attempts} of {job.max_retries + 1}",
            "crashes": job.crashes or None,
            "progress": None if progress is None else f"{progress.fraction:.0%} {progress.message or ''}",
            "node": job.node_id,
            "business key": job.business_key,
            "idempotency key": job.idempotency_key,
            "parent": job.parent_id,
            "batch": job.batch_id,
            "schedule": job.schedule,
            "superseded by": job.superseded_by,
            "canceled": job.canceled_reason,
            "caller": job.caller,
            "error": job.error,
            "result": repr(job.result) if job.status is JobStatus.SUCCEEDED else None,
            "archived": job.archived or None,
        }
    )


def show_runs(out: Output, runs: list[Execution], *, traceback: bool) -> None:
    """How its runs went."""
    out.heading("Runs")
    out.table(
        ("attempt", "status", "started", "duration", "waited", "node", "error"),
        [
            (
                run.attempt if run.counted else "-",
                run.status,
                run.started_at,
                run.duration,
                run.queue_wait,
                run.node_id,
                run.error,
            )
            for run in runs
        ],
        spare=("waited", "node", "started"),
    )
    for run in runs:
        if traceback and run.traceback:
            out.heading(f"Traceback of attempt {run.attempt}")
            out.text(run.traceback)
