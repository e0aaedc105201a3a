"""
Every read that locks rows says how it stays true where a lock of a row holds on one of several servers.

What is compared there when a transaction commits is what it has changed (`Session.hold`). So the transaction changes
every row by which it decides, or holds it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import ratchet.stores.sql

SOURCE = Path(ratchet.stores.sql.__file__).parent
#: Where a lock of a row is enough.
ELSEWHERE = ("dialects/postgresql/", "dialects/sqlite/")

#: The rows are changed or deleted by the transaction that locks them, as far as it decides by them.
CHANGED = {
    "cluster.py": {"LOCK_FREE_NODES", "LOCK_RUNNING_OF_NODE", "LOCK_NODE"},
    "dependants/batch_counters.py": {"LOCK_BATCHES", "FIND_COMPLETE"},
    "dialects/mysql/claims.py": {"LOCK_CHOSEN"},
    "finish/completions.py": {"ORDER_QUEUE_ROWS", "ORDER_JOBS"},
    "history.py": {"OLD_LINES", "LOCK_OLD_JOBS", "LOCK_OLD_ARCHIVED"},
    "jobs.py": {"IS_ARCHIVED", "LOCK_OLD_DEAD_LETTERS"},
    "permits.py": {"LOCK_LIMIT", "LOCK_NOT_ASKED_FOR"},
    "recover/rescues.py": {"LOCK_FREE_RUNNING_OF_NODE"},
    "recurring.py": {"LOCK_DUE_SCHEDULE"},
    "rows/flow_periods.py": {"LOCK_PERIODS"},
    "rows/kept_signals.py": {"FIND_KEPT"},
    "rows/keys_and_permits.py": {"LOCK_HELD_BACK", "LOCK_HELD_BACK_MEANWHILE", "LOCK_HELD_BACK_FOR_NODE"},
    "rows/locked.py": {
        "LOCK_QUEUE_ROWS",
        "LOCK_FREE_QUEUE_ROWS",
        "LOCK_HELD_ROWS",
        "LOCK_JOBS",
        "LOCK_FREE_JOBS",
    },
    "rows/stream_registry.py": {"FIND_UNMARKED"},
    "signals.py": {"FIND_OLD_KEY_ROWS", "FIND_WAITERS", "FIND_FORGOTTEN"},
    "streams.py": {"LOCK_QUEUE", "LOCK_STREAMS"},
    "transitions.py": {"LOCK_UNKNOWN_ROWS"},
}

#: The transaction may leave some of them as they are, and holds these.
HELD = {
    "claiming/gates.py": {"LOCK_LIMITS"},
    "rows/kept_signals.py": {"LOCK_KEY_ROWS"},
    "rows/keys_and_permits.py": {"LOCK_KEYS", "LOCK_REMEMBERED"},
    "rows/locked.py": {"LOCK_WAITING_JOBS", "LOCK_CANCELED_JOBS"},
    "submit/submissions.py": {"LOCK_PARENTS"},
    "transitions.py": {"LOCK_RUN"},
}

#: Neither: what could go wrong, and why that is harmless.
HARMLESS = {
    "moving.py": {"LOCK_MOVE"},  # the fence of a move is a trigger; its record is compared and swapped
    "recurring.py": {"LOCK_SCHEDULE"},  # a fire of a schedule that was removed at that moment
    "dialects/mysql/shapes.py": {"_COUNTED"},  # no read: a pattern
}


def found() -> dict[str, set[str]]:
    """The constants of each file that have a locking read in them."""
    constants: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if "{for update" in ast.unparse(node.value) and not name.startswith(ELSEWHERE):
                    constants.setdefault(name, set()).add(ast.unparse(target))
    return constants


def test_every_locking_read_is_thought_of() -> None:
    """A new locking read is a guard: say which rows are changed, or hold them, and write it down here."""
    known: dict[str, set[str]] = {}
    for kind in (CHANGED, HELD, HARMLESS):
        for name, constants in kind.items():
            known.setdefault(name, set()).update(constants)
    assert found() == known
