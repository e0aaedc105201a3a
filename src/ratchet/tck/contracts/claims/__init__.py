"""
Claims: which jobs are due, in which order, and who holds them.

`next_batch` says what a claim takes, `order` in which order, and `held` what a node can read about its claims.
"""
