"""
Moves all jobs of a store to another one, to a file and back, and looks after a store that was restored.

Enter at `moves.move` (fence, drain, copy, compare, open), `files.export_store` and `files.import_file`, and `restoring.after_restore`.
They see stores only through `ratchet.spi.movable`; decision 21 says why a move cannot run a job twice.
"""

from __future__ import annotations

from ratchet.moving.files import export_store, import_file
from ratchet.moving.moves import give_up, move
from ratchet.moving.reports import MoveReport, Progress, Stage
from ratchet.moving.restoring import Restored, RestoreReport, after_restore

__all__ = [
    "MoveReport",
    "Progress",
    "RestoreReport",
    "Restored",
    "Stage",
    "after_restore",
    "export_store",
    "give_up",
    "import_file",
    "move",
]
