"""
The shield: keeps the interruption of a running job out of code that holds connections and locks.

A timeout or a cancel is raised into the thread of the job, wherever that is at the moment. Between taking a
connection and noting that it was taken, that would leave it taken forever. A store therefore does all of its
work inside `undisturbed`, and lends a transaction inside `bracketed`: the interruption is raised before or
after.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import ParamSpec, Protocol, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class Shield(Protocol):
    """How the run of a job keeps its interruption out."""

    def shielded(self) -> AbstractContextManager[None]:
        """A block that no interruption of the run can break into; it is raised before or after."""
        ...

    def around(self, block: AbstractContextManager[T]) -> AbstractContextManager[T]:
        """The same for the beginning and the end of *block*; what is inside can be interrupted as before."""
        ...


#: The shield of the job that is running in this thread or task.
current_shield: ContextVar[Shield | None] = ContextVar("ratchet_shield", default=None)


def undisturbed() -> AbstractContextManager[None]:
    """A block of our own code that an interruption of the running job, if there is one, cannot break into."""
    shield = current_shield.get()
    return nullcontext() if shield is None else shield.shielded()


def call_undisturbed(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What *work* returns, called in such a block. Outside of jobs, where most submissions come from, no block is entered."""
    shield = current_shield.get()
    if shield is None:
        return work(*args, **kwargs)
    with shield.shielded():
        return work(*args, **kwargs)


def bracketed(block: AbstractContextManager[T]) -> AbstractContextManager[T]:
    """*block*, whose beginning and end an interruption of the running job cannot break into."""
    shield = current_shield.get()
    return block if shield is None else shield.around(block)
