"""The history: what the store, the ledger and the diary say after a play, held against the promises."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from ratchet import Job, JobFilter, JobStatus
from ratchet.model.job import Execution, ExecutionStatus
from tests.chaos import diary, ledger
from tests.chaos.stage import ENDED, Blow, Stage


@dataclass
class Row:
    """One line of the table: numbers of the jobs at fault, not only how many they are."""

    scenario: str
    store: str
    jobs: int
    lost: list[int] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)
    dead_letters: list[int] = field(default_factory=list)
    false_rescues: list[str] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    halts: list[tuple[float, float]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def faults(self) -> dict[str, object]:
        """What must be empty."""
        found = {
            "lost": self.lost,
            "counted twice": self.twice,
            "dead letters": self.dead_letters,
            "false rescues": self.false_rescues,
            "broken": self.broken,
        }
        return {name: which for name, which in found.items() if which}

    def recovery(self, share: float) -> float | None:
        """A quantile of the recovery times, in seconds."""
        times = sorted(self.recoveries)
        return times[max(0, math.ceil(share * len(times)) - 1)] if times else None


def read_history(scenario: str, stage: Stage, *, effects: bool = True, retried: bool = False) -> Row:
    """
    Judge a play from the outside.

    *effects*: its jobs write the ledger. *retried*: the scenario cuts the jobs' own transactions,
    which is a failed attempt by right, so that a job may have failed before it succeeded.
    """
    stored = {job.id: job for job in _all_jobs(stage)}
    booked = _ledger(stage) if effects else _finished(stage)
    row = Row(scenario, stage.kind, len(stage.acknowledged), broken=stage.broken, notes=stage.notes)
    for number, job_id in stage.acknowledged.items():
        job = stored.get(job_id)
        if job is None or job.status not in ENDED:
            row.lost.append(number)
            continue
        runs = stage.scheduler.jobs.executions(job_id)
        if job.status is JobStatus.FAILED and number not in stage.poisons:
            row.dead_letters.append(number)
        if job.status is JobStatus.SUCCEEDED and effects and not booked[number]:
            row.lost.append(number)
        if _counts_twice(job, runs, retried) or (effects and booked[number] > 1):
            row.twice.append(number)
        if job.status is JobStatus.FAILED and effects and booked[number]:
            row.twice.append(number)
    row.twice += [number for number in stage.refused if booked[number] > 1]
    row.false_rescues = false_rescues(stage)
    row.recoveries = [*stage.recoveries, *_recoveries(stage)]
    row.halts = stage.halts
    return row


def _counts_twice(job: Job, runs: list[Execution], retried: bool) -> bool:
    succeeded = sum(run.status == ExecutionStatus.SUCCEEDED for run in runs)
    return succeeded > 1 or (len(runs) > 1 and not retried) or job.attempts != len(runs)


def false_rescues(stage: Stage) -> list[str]:
    """
    Nodes that were declared dead although nobody had killed or stopped them.

    A process that left while the database was away could not say goodbye. Others rightly notice its silence.
    """
    left = stage.hurt + stage.left_in_silence()
    false = []
    for node in stage.scheduler.nodes.list():
        if node.rescued_at is None:
            continue
        if left[node.name] > 0:
            left[node.name] -= 1
        else:
            false.append(f"{node.name} ({node.node_id}) by {node.rescued_by}")
    return false


def _recoveries(stage: Stage) -> list[float]:
    """From each blow to the next start of each job that was running under it."""
    entries = diary.read(stage.book)
    return [time for blow in stage.blows for time in _recovery(blow, entries)]


def _recovery(blow: Blow, entries: list[diary.Entry]) -> list[float]:
    held: dict[int, diary.Entry] = {}
    for entry in entries:
        if entry.at > blow.at:
            break
        if entry.verb == "start" and blow.hits(entry):
            held[entry.number] = entry
        else:  # it ended, or another process has taken it since
            held.pop(entry.number, None)
    restarts: dict[int, float] = {}
    for entry in entries:
        if entry.verb == "start" and entry.number in held and entry.at > blow.at:
            restarts.setdefault(entry.number, entry.at - blow.at)
    return list(restarts.values())


def _ledger(stage: Stage) -> Counter[int]:
    with stage.store.begin() as connection:
        return Counter(ledger.booked(connection))


def _finished(stage: Stage) -> Counter[int]:
    return Counter(entry.number for entry in diary.read(stage.book) if entry.verb == "end")


def _all_jobs(stage: Stage) -> list[Job]:
    found: list[Job] = []
    cursor = None
    while True:
        page = stage.scheduler.jobs.find(JobFilter(), limit=500, cursor=cursor)
        found += page
        cursor = page.next_cursor
        if cursor is None:
            return found
