"""An app that cannot be imported: what a deploy with a mistake looks like."""

from __future__ import annotations

TIMEOUT = int("thirty")
