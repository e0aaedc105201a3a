"""
Claiming: how due jobs are found and given to a node.

`gates.choose_gated` decides which jobs may be taken, in which order. `plan.ClaimPlan` is what a product implements in
``dialects/<product>/claims.py``; it looks, calls `choose_gated` where limits have to be counted, and marks what it
takes. `reasons.reasons` explains why a job is not taken, by the same gates. Calls `rows` and `database`.
"""
