"""
Transitions: cancel, expire, retry, pause, hand back, park, and what a run saves while it is running.

`cancellations` ends jobs, `returns` puts them back or aside, and `progress` is what a run saves.
"""
