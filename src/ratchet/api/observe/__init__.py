"""
What can be asked about jobs after they were submitted.

`handles.JobHandle` asks about one job and waits for it, `queries` are the facades ``scheduler.jobs`` and
its neighbors, `health.health_of` is the health check. All read the store; `records` turns what it
returns into what users see.
"""
