"""
What each page shows: a function that reads it through the scheduler's public API, and its address.

`PAGES` is the list; a page's data is what its template gets, and what ``Accept: application/json`` is answered with.
"""

from __future__ import annotations

from ratchet.dashboard.pages.audit import audit
from ratchet.dashboard.pages.batches import batch, batch_pulse, batches
from ratchet.dashboard.pages.cluster import limits, nodes, queues
from ratchet.dashboard.pages.dead_letters import dead_letters
from ratchet.dashboard.pages.graph import graph
from ratchet.dashboard.pages.job import job, job_pulse
from ratchet.dashboard.pages.jobs import jobs
from ratchet.dashboard.pages.overview import overview, rest_of
from ratchet.dashboard.pages.question import Page, Question
from ratchet.dashboard.pages.schedules import schedule, schedules

#: While nothing happens, an open page costs the store one statement in a second at most; that of a job that runs costs two,
#: because its log is followed.
PAGES: tuple[Page, ...] = (
    Page("overview", "/", overview, every=10.0, rest=rest_of),
    Page("jobs", "/jobs", jobs, every=6.0),
    Page("job", "/jobs/{id}", job, every=3.0, pulse=job_pulse, whole=30.0),
    Page("dead_letters", "/dead-letters", dead_letters, every=5.0),
    Page("queues", "/queues", queues, every=10.0),
    Page("limits", "/limits", limits, every=3.0),
    Page("schedules", "/schedules", schedules, every=5.0),
    Page("schedule", "/schedules/{name:path}", schedule, every=5.0),
    Page("batches", "/batches", batches),
    Page("batch", "/batches/{id}", batch, every=3.0, pulse=batch_pulse, whole=20.0),
    Page("graph", "/graphs/{id}", graph, every=8.0),
    Page("nodes", "/nodes", nodes, every=5.0),
    Page("audit", "/audit", audit, every=3.0),
)

__all__ = ["PAGES", "Page", "Question"]
