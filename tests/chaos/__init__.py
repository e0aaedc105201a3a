"""
Scenarios that hurt a running cluster, and a check of its history afterwards (``make chaos``).

Real processes, real servers: `stage` starts them, a scenario hurts them, `history` reads what is left.
"""
