"""
Recovering: jobs of dead nodes, and failed jobs that somebody retries.

`rescues.take_back_from` takes back the work of a dead node, `unowned_claims` finds what is held under names that
nobody uses, and `manual_retry.retry_jobs` makes failed jobs PENDING again. Calls `finish`, `dependants` and `rows`.
"""
