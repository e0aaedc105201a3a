from __future__ import annotations

from typing import Protocol


class ConstraintDetector(Protocol):
    """Reads a driver's exception: which constraint did the database refuse?"""

    def is_unique_violation(self, error: BaseException) -> bool:
        """True if *error* says that a unique key already exists."""
        ...

    def is_foreign_key_violation(self, error: BaseException) -> bool:
        """True if *error* says that a referenced row is missing, or still referenced."""
        ...
