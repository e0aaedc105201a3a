"""``ratchet nodes``: which processes run jobs."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.output import Output, ago
from ratchet.model.cluster import NodeRecord, NodeState


def nodes(
    every: Annotated[bool, typer.Option("--all", help="Dead ones too.")] = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """List the processes that run jobs."""
    with given.opened(url) as scheduler:
        found = [node for node in scheduler.nodes.list() if every or node.state is not NodeState.DEAD]
        out = Output(as_json=json)
        if json:
            out.document({"nodes": found})
            return
        now = scheduler.backend.now()
        out.table(
            ("node", "state", "host", "pid", "running", "lanes", "queues", "beat", "started"),
            [
                (
                    node.node_id,
                    node.state,
                    node.host,
                    node.pid,
                    node.running,
                    *_info(node),
                    ago(node.last_beat_at, now),
                    ago(node.started_at, now),
                )
                for node in found
            ],
            empty="no node is running; start one with: ratchet worker package.module:scheduler",
            spare=("queues", "lanes", "started", "host", "pid"),
        )


def _info(node: NodeRecord) -> tuple[str | None, str | None]:
    """Lanes and queues as the node described itself."""
    try:
        info = json_module.loads(node.info or "{}")
        lanes = ", ".join(f"{lane} {slots}" for lane, slots in (info.get("lanes") or {}).items())
        queues = ", ".join(info["queues"]) if info.get("queues") else "all"
    except (ValueError, TypeError, AttributeError):
        return None, None
    return lanes or None, queues
