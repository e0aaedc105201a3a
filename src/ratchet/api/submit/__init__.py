"""
The first step of a job: it is described, checked and stored.

`builders.JobBuilder` describes it; its ``submit()`` lets `steps` make specs of what was described, and
`sending.send` stores them through ``store.insert`` and wakes the pollers. `immediate.submit_now` does the
same for one job without a builder, `bulk.send_many` for many jobs of one target.
"""
