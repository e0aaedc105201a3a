"""All scenarios, by name, in the order of the table."""

from __future__ import annotations

from tests.chaos import deaths, restarts
from tests.chaos.scenario import Scenario

FAMILIES = (deaths, restarts)
CATALOG: dict[str, Scenario] = {s.name: s for family in FAMILIES for s in family.SCENARIOS}
