"""Where a run that was asked to writes what it has measured: the file that the page about stores is made from."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: Names the file; without it nothing is written.
VARIABLE = "RATCHET_MEASURED"


def is_quiet() -> bool:
    """True where the machine had cores to spare in the last minute: ask before the measurement."""
    return os.getloadavg()[0] < 0.75 * (os.cpu_count() or 1)


def record(section: str, key: str, **values: Any) -> None:
    """Put *values* under *key* of *section*, with the day and the number of cores, in place of what was there."""
    named = os.environ.get(VARIABLE)
    if not named:
        return
    path = Path(named)
    known: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    where = {"on": f"{datetime.now(UTC):%Y-%m-%d}", "cores": os.cpu_count()}
    known.setdefault(section, {})[key] = {**values, **where}
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
