"""The plan of a claim on PostgreSQL: what it reads, by EXPLAIN ANALYZE."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.postgresql import claims as postgresql_claims
from ratchet.stores.sql.dialects.postgresql.many_streams import ManyStreams
from ratchet.stores.sql.dialects.postgresql.scan_start import ScanStarts
from ratchet.stores.sql.store import SqlStore
from tests.stores.backlog import NOW, request


@dataclass
class Plan:
    """What EXPLAIN ANALYZE says about one claim."""

    rows: dict[str, int]  # rows read, by (kind of scan, relation)
    buffers: int
    looks: int = 0  # the buffers of those that only look, without a lock


class RolledBack(Exception):
    pass


def explain(store: SqlStore, limit: int, starts: ScanStarts | None = None, **changes: Any) -> Plan:
    """The plan of the very statement that a claim sends; what it did is rolled back."""
    asked = request(limit, **changes)
    look = postgresql_claims._Look(starts or ScanStarts(), asked, ManyStreams())
    params = look.params(NOW)
    text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {look.statement()}"
    found: list[Any] = []

    def work(session: Session) -> None:
        found.append(session.value(text, params))
        raise RolledBack

    with pytest.raises(RolledBack):
        store.database.run(work, claiming=True)
    root = (json.loads(found[0]) if isinstance(found[0], str) else found[0])[0]["Plan"]
    rows: dict[str, int] = {}
    for node in _nodes(root):
        if "Relation Name" in node and node["Node Type"] != "ModifyTable":
            key = f"{node['Node Type']} on {node['Relation Name']}"
            rows[key] = rows.get(key, 0) + round(node["Actual Rows"] * node["Actual Loops"])
    looks = [node for node in _nodes(root) if node["Node Type"] == "Index Only Scan"]
    return Plan(rows, _buffers(root), sum(_buffers(node) for node in looks))


def _buffers(node: dict[str, Any]) -> int:
    found: int = node["Shared Hit Blocks"] + node["Shared Read Blocks"]
    return found


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)
