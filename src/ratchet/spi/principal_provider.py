from __future__ import annotations

from typing import Protocol


class PrincipalProvider(Protocol):
    """Knows on whose behalf the calling code submits; kept with the job as ``caller``."""

    def current(self) -> str | None:
        """The name of the current principal, at most 255 characters; None if there is none."""
        ...
