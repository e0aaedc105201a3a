"""
For tests of code that uses jobs.

`isolated` lets the scheduler of your application live in memory for a while; `manual_scheduler` makes one that always does. Both have a clock
that you move, and ``drain()``, which runs what is due, in order, on the calling thread. `run_worker_until_idle` works off the
jobs of a real store. `simulate` plays your jobs with crashes between any two of their effects. Under pytest there are the fixtures ``ratchet_isolated``, ``ratchet_clock`` and ``ratchet_scheduler``.
"""

from ratchet.model.clock import ManualClock
from ratchet.testing.isolation import IsolatedTestCase, Isolation, isolated
from ratchet.testing.manual import ManualScheduler, manual_scheduler
from ratchet.testing.real_store import run_worker_until_idle
from ratchet.testing.simulation import Simulation, SimulationFailed, SimulationReport, simulate

__all__ = [
    "IsolatedTestCase",
    "Isolation",
    "ManualClock",
    "ManualScheduler",
    "Simulation",
    "SimulationFailed",
    "SimulationReport",
    "isolated",
    "manual_scheduler",
    "run_worker_until_idle",
    "simulate",
]
