"""`Permission`: what a person can be allowed to do. A closed list: each public verb asks for one of them."""

from __future__ import annotations

from enum import StrEnum


class Permission(StrEnum):
    """
    What an `Authorizer` is asked about.

    Those up to DELETE are about one job; bulk verbs ask the same permission as the verb for one job, for each job. The rest
    are about what is not a job, and are asked without one.
    """

    VIEW = "view"  # read a job: its state, arguments, result, runs, log lines; also its place in listings and counts
    SUBMIT = "submit"  # also each job of a batch, a chain and a workflow, and the new job of `replace`
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    RESCHEDULE = "reschedule"  # also to now: "run now"
    SET_PRIORITY = "set_priority"
    REPLACE = "replace"
    DELETE = "delete"  # also by purging dead letters
    SIGNAL = "signal"  # with the job, if the signal is for one
    LIST = "list"  # read what is not a job: queues, limits, breakers, nodes, schedules, batches, statistics, sizes, health
    QUEUES = "queues"  # pause and resume queues
    LIMITS = "limits"
    BREAKERS = "breakers"
    SCHEDULES = "schedules"  # create, change, pause, resume, trigger, remove; with what a run would be, if it is known
    BATCHES = "batches"  # cancel a batch, retry its failed items; with the job that stands for it
    NODES = "nodes"
    AUDIT = "audit"  # read the audit log
    STORAGE = "storage"  # purge what was kept long enough; encrypt stored values anew
    SCHEMA = "schema"  # create and upgrade the tables
