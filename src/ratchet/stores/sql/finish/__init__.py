"""
Finishing: how runs end, and what their ends write.

`completions.complete_runs` is the entry for the ends that workers report, `expiries.expire_jobs` for jobs whose time is
over; `requeues` is the way back to PENDING. Calls `dependants` for what an end means for others, `submit` for callback
jobs, and `rows`.
"""
