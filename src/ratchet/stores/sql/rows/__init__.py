"""
What a row is: how jobs, streams, keys, permits and kept signals are stored, locked, read and searched.

Used by every step of a job, inside its transaction; calls nothing but the session. Start with `specs` (a submitted
job as rows), `locked` (jobs and queue rows under a lock) and `records` (a stored job as it is read).
"""
