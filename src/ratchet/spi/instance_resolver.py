from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class InstanceResolver(Protocol):
    """
    Finds the object on which a method runs as a job.

    The place to connect a dependency injection container. It is called on worker threads, by
    several at once, once per run.
    """

    def resolve(self, cls: type[T]) -> T:
        """An instance of *cls* that is ready for use; what it raises fails the attempt."""
        ...
