"""``ratchet nodes``: which processes run jobs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from msgspec import structs

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import NothingFound
from ratchet.cli.output import Output, ago
from ratchet.model.cluster import NodeRecord, NodeState
from ratchet.scheduler import Scheduler


def nodes(
    every: Annotated[bool, typer.Option("--all", help="Show dead nodes too.")] = False,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove",
            metavar="NODE",
            help="Forget this node, which must be dead or silent; its running jobs are requeued. May be repeated.",
            show_default=False,
        ),
    ] = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """List the processes that run jobs, or forget some that are gone."""
    with given.opened(url) as scheduler:
        out = Output(as_json=json)
        if remove:
            _remove(scheduler, remove)
            out.say(f"removed {', '.join(remove)}", removed=remove)
            return
        found = [node for node in scheduler.nodes.list() if every or node.state is not NodeState.DEAD]
        if json:
            out.document({"nodes": [_document(node) for node in found]})
            return
        now = scheduler.backend.now()
        out.table(
            (
                "node",
                "state",
                "host",
                "pid",
                "version",
                "running",
                "lanes",
                "queues",
                "tags",
                "rescues",
                "false",
                "beat",
                "started",
            ),
            [
                (
                    node.node_id,
                    node.state,
                    node.host,
                    node.pid,
                    node.version,
                    node.running,
                    ", ".join(f"{lane} {slots}" for lane, slots in node.about.lanes.items()) or None,
                    ", ".join(node.about.queues) if node.about.queues else "all",
                    ", ".join(node.about.tags) or None,
                    node.about.rescues,
                    node.about.false_rescues,
                    ago(node.last_beat_at, now),
                    ago(node.started_at, now),
                )
                for node in found
            ],
            empty="no node is running; start one with: ratchet worker package.module:scheduler",
            spare=("tags", "version", "queues", "lanes", "started", "rescues", "false", "host", "pid"),
        )


def _remove(scheduler: Scheduler, node_ids: list[str]) -> None:
    for node_id in node_ids:
        if not scheduler.nodes.remove(node_id):
            raise NothingFound(f"there is no node {node_id!r}; `ratchet nodes --all` lists those there are")


def _document(node: NodeRecord) -> dict[str, Any]:
    """The node's row, with what the node says about itself as fields instead of one string."""
    row = structs.asdict(node)
    row.pop("info")
    return {**row, **structs.asdict(node.about)}
