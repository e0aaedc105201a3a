"""All scenarios, by name, in the order of the table."""

from __future__ import annotations

from tests.chaos import (
    connections,
    crowds,
    deaths,
    mongodb_cluster,
    patroni_cluster,
    restarts,
    rotation,
    surroundings,
)
from tests.chaos.scenario import Scenario
from tests.chaos.soak import play as soak

FAMILIES = (
    deaths,
    restarts,
    connections,
    surroundings,
    rotation,
    patroni_cluster,
    mongodb_cluster,
    crowds,
    soak,
)
CATALOG: dict[str, Scenario] = {s.name: s for family in FAMILIES for s in family.SCENARIOS}
