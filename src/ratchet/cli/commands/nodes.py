"""``ratchet nodes``: which processes run jobs; drain and stop them from afar."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import typer
from msgspec import structs

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import EPILOG, NothingFound, Refused
from ratchet.cli.output import Output, ago
from ratchet.model.cluster import NodeRecord, NodeRequest, NodeState
from ratchet.model.durations import format_duration
from ratchet.model.process import shown_size
from ratchet.scheduler import Scheduler

commands = typer.Typer(
    help="Nodes: the processes that run jobs; drain, stop and forget them.",
    invoke_without_command=True,
    epilog=EPILOG,
)

#: Seconds between two looks at a node that was asked something.
LOOK = 0.25

All = Annotated[bool, typer.Option("--all", help="Show dead nodes too.")]
Remove = Annotated[
    list[str] | None,
    typer.Option(
        "--remove",
        metavar="NODE",
        help="Forget this node, which must be dead or silent; its running jobs are requeued. May be repeated.",
        show_default=False,
    ),
]
NodeId = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="The node's id, or as much of its beginning or end as no other has.",
        show_default=False,
    ),
]
Wait = Annotated[
    str,
    typer.Option(
        "--wait", metavar="DURATION", help="Wait this long for the node to answer; 0: only leave word for it."
    ),
]


@commands.callback(epilog=EPILOG)
def nodes(
    context: typer.Context,
    every: All = False,
    remove: Remove = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """List the processes that run jobs; drain, stop or forget them."""
    if context.invoked_subcommand is not None:
        context.obj = url
        return
    with given.opened(url) as scheduler:
        if remove:
            _remove(scheduler, remove)
            Output(as_json=json).say(f"removed {', '.join(remove)}", removed=remove)
            return
        _show(scheduler, every, as_json=json)


@commands.command("list", epilog=EPILOG)
def list_(
    context: typer.Context, every: All = False, url: given.Url = None, json: given.Json = False
) -> None:
    """List the processes that run jobs, with what each has and does."""
    with given.opened(url or context.obj) as scheduler:
        _show(scheduler, every, as_json=json)


@commands.command(epilog=EPILOG)
def drain(
    context: typer.Context,
    node: NodeId,
    wait: Wait = "30s",
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """
    Ask a node to take no more jobs and to finish those that run.

    It stays draining until it is resumed or stopped. Jobs that it has claimed and not started go to other nodes.
    """
    patience = given.duration(wait, "--wait")
    with given.opened(url or context.obj) as scheduler:
        node_id = _node_id(scheduler, node)
        scheduler.nodes.drain(node_id)
        found = _answer(scheduler, node_id, lambda one: one.state is NodeState.DRAINING, patience)
        _tell(found, node_id, patience, "draining", as_json=json)


@commands.command(epilog=EPILOG)
def resume(
    context: typer.Context,
    node: NodeId,
    wait: Wait = "30s",
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Let a node that was drained take jobs again."""
    patience = given.duration(wait, "--wait")
    with given.opened(url or context.obj) as scheduler:
        node_id = _node_id(scheduler, node)
        if not scheduler.nodes.resume(node_id):
            left = _find(scheduler, node_id)
            if left is None or left.request is NodeRequest.STOP or left.state is NodeState.DRAINING:
                raise Refused(f"node {node_id} is stopping, which cannot be taken back")
        found = _answer(scheduler, node_id, lambda one: one.state is NodeState.ACTIVE, patience)
        _tell(found, node_id, patience, "active", as_json=json)


@commands.command(epilog=EPILOG)
def stop(
    context: typer.Context,
    node: NodeId,
    wait: Wait = "30s",
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """
    Ask a node to stop: it takes no more jobs, finishes what runs within its drain time, hands back the rest, and leaves.

    A process of a worker ends and is not replaced; the worker ends with its last process. A program that runs its
    scheduler itself goes on, but no longer runs jobs.
    """
    patience = given.duration(wait, "--wait")
    with given.opened(url or context.obj) as scheduler:
        node_id = _node_id(scheduler, node)
        scheduler.nodes.stop(node_id)
        found = _answer(scheduler, node_id, lambda one: one.state is NodeState.DRAINING, patience)
        _tell(found, node_id, patience, "stopping", as_json=json)


# --- asking


def _node_id(scheduler: Scheduler, text: str) -> str:
    """The node that *text* names; dead ones only by their whole id."""
    found = scheduler.backend.store.nodes(counting=False)
    if any(node.node_id == text for node in found):
        return text
    alive = [node.node_id for node in found if node.state is not NodeState.DEAD]
    meant = [one for one in alive if one.startswith(text) or one.endswith(text)] if text else []
    if len(meant) > 1:
        raise typer.BadParameter(
            f"several nodes are called {text}: {', '.join(meant[:3])}; give more of the id", param_hint="NODE"
        )
    if not meant:
        raise NothingFound(f"there is no node {text!r}; `ratchet nodes --all` lists those there are")
    return meant[0]


def _find(scheduler: Scheduler, node_id: str) -> NodeRecord | None:
    return next((one for one in scheduler.nodes.list() if one.node_id == node_id), None)


def _answer(
    scheduler: Scheduler, node_id: str, has_answered: Callable[[NodeRecord], bool], patience: float
) -> tuple[bool, NodeRecord | None]:
    """Whether the node has answered, and its row; no row: it has left."""
    deadline = time.monotonic() + patience
    while True:
        found = _find(scheduler, node_id)
        if found is None or has_answered(found):
            return True, found
        if time.monotonic() >= deadline:
            return False, found
        time.sleep(LOOK)


def _tell(
    answer: tuple[bool, NodeRecord | None], node_id: str, patience: float, what: str, *, as_json: bool
) -> None:
    answered, node = answer
    out = Output(as_json=as_json)
    facts = {"node_id": node_id, "answered": answered, "running": 0 if node is None else node.running}
    if answered:
        runs = 0 if node is None else node.running
        still = "" if what == "active" else "still "
        running = f"; it {still}runs {runs} job{'s' if runs > 1 else ''}" if runs else ""
        out.say(f"node {node_id} has left" if node is None else f"node {node_id} is {what}{running}", **facts)
        return
    if not patience:
        out.say(f"word was left for node {node_id}; it learns of it with its next beat", **facts)
        return
    if as_json:
        out.document(facts)
    version = "" if node is None else f" It runs version {node.version}; 0.1.0 does not listen."
    raise Refused(
        f"node {node_id} has not answered within {format_duration(timedelta(seconds=patience))}; the request stays, and it is "
        f"obeyed when the node looks. A process that is stuck in one call cannot look.{version}"
    )


def _remove(scheduler: Scheduler, node_ids: list[str]) -> None:
    for node_id in node_ids:
        if not scheduler.nodes.remove(node_id):
            raise NothingFound(f"there is no node {node_id!r}; `ratchet nodes --all` lists those there are")


# --- showing


def _show(scheduler: Scheduler, every: bool, *, as_json: bool) -> None:
    found = [node for node in scheduler.nodes.list() if every or node.state is not NodeState.DEAD]
    out = Output(as_json=as_json)
    if as_json:
        out.document({"nodes": [_document(node) for node in found]})
        return
    now = scheduler.backend.now()
    columns: dict[str, Callable[[NodeRecord], Any]] = {
        "node": lambda node: node.node_id,
        "state": _state,
        "host": lambda node: node.host,
        "pid": lambda node: node.pid,
        "version": lambda node: node.version,
        "running": lambda node: node.running,
        "still": lambda node: node.about.still_running,
        "memory": lambda node: None if node.about.memory is None else shown_size(node.about.memory),
        "slots": lambda node: (
            ", ".join(f"{lane} {slots}" for lane, slots in node.about.lanes.items()) or None
        ),
        "queues": lambda node: ", ".join(node.about.queues) if node.about.queues else "all",
        "tags": lambda node: ", ".join(node.about.tags) or None,
        "rescues": lambda node: node.about.rescues,
        "false": lambda node: node.about.false_rescues,
        "beat": lambda node: ago(node.last_beat_at, now),
        "started": lambda node: ago(node.started_at, now),
    }
    out.table(
        tuple(columns),
        [[value(node) for value in columns.values()] for node in found],
        empty="no node is running; start one with: ratchet worker package.module:scheduler",
        spare=(
            "tags",
            "false",
            "rescues",
            "version",
            "queues",
            "slots",
            "started",
            "host",
            "pid",
            "still",
            "memory",
        ),
    )


def _state(node: NodeRecord) -> Any:
    """Its state; in small letters what it was asked and has not answered yet."""
    if node.request is not None and node.state is NodeState.ACTIVE:
        return f"{node.state} ({node.request.value.lower()} asked)"
    return node.state


def _document(node: NodeRecord) -> dict[str, Any]:
    """The node's row, with what the node says about itself as fields instead of one string."""
    row = structs.asdict(node)
    row.pop("info")
    return {**row, **structs.asdict(node.about)}
