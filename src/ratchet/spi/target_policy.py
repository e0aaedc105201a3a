from __future__ import annotations

from typing import Protocol


class TargetPolicy(Protocol):
    """
    Decides which functions may run as jobs.

    It is asked at submit and again on the worker *before* anything of the target is imported:
    whoever can write to the database can name a target, but only one that is allowed is imported,
    let alone called. Functions declared with ``@scheduler.job`` are allowed without asking.
    """

    def allows(self, target: str) -> bool:
        """True if *target*, written ``module:qualname``, may be imported and run here."""
        ...

    def hint(self, target: str) -> str:
        """What a person would add to the configuration so that *target* becomes allowed."""
        ...
