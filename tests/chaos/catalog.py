"""All scenarios, by name, in the order of the table."""

from __future__ import annotations

from tests.chaos import connections, crowds, deaths, restarts, surroundings
from tests.chaos.scenario import Scenario

FAMILIES = (deaths, restarts, connections, surroundings, crowds)
CATALOG: dict[str, Scenario] = {s.name: s for family in FAMILIES for s in family.SCENARIOS}
