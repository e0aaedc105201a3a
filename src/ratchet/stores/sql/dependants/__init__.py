"""
Dependants: what the end of a job means for other jobs.

`edges.settle_edges` is the entry: it settles the edges of ended jobs, releases, cancels or fails their children, and
counts batches (`batch_counters`). `cancellations` cancels and fails jobs together with all that waits for them,
`releases` puts jobs into the queue, `callbacks` stores failure callbacks. Calls `rows`.
"""
