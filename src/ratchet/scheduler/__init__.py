"""
The front door: `Scheduler` has the verbs, `Core` wires store, events and engine together; neither owns rules.

A submission enters at `submitting`, what is done to stored jobs at `controlling`, decorators at
`declaring`; all of them call the rooms of ``api``. ``start()`` makes a node of ``engine`` from `parts`.
"""

from ratchet.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
