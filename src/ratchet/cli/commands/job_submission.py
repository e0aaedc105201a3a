"""``ratchet jobs submit``: store a job by the name of its function; no code of the application is imported."""

from __future__ import annotations

from json import JSONDecodeError, loads
from typing import Annotated, Any

import typer

from ratchet.api.submit.builders import JobBuilder
from ratchet.api.targets import NamedTarget
from ratchet.cli import parameters as given
from ratchet.cli.output import Output
from ratchet.model.errors import InvalidTarget
from ratchet.model.status import Priority


def submit(
    target: Annotated[
        str,
        typer.Argument(
            help="The function, as package.module:function, or the name that it was declared with.",
            show_default=False,
        ),
    ],
    args: Annotated[
        str, typer.Option("--args", metavar="JSON", help="The positional arguments, as a JSON list.")
    ] = "[]",
    kwargs: Annotated[
        str, typer.Option("--kwargs", metavar="JSON", help="The keyword arguments, as a JSON object.")
    ] = "{}",
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="Its queue.", show_default=False)
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            "--priority",
            metavar="PRIORITY",
            help=", ".join(member.name for member in Priority),
            show_default=False,
        ),
    ] = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """
    Store a job that is due at once, by the name of its function; print its id.

    The worker decides whether the function may run, and what its arguments mean. A job that no worker can run is
    parked: `ratchet jobs explain ID` says so. Defaults of @scheduler.job do not apply.
    """
    positional = _json(args, list, "--args", "a list, such as '[42]'")
    named = _json(kwargs, dict, "--kwargs", 'an object, such as \'{"region": "eu"}\'')
    try:
        function = NamedTarget.of(target)
    except InvalidTarget as error:
        raise typer.BadParameter(str(error), param_hint="TARGET") from None
    chosen = Priority.NORMAL if priority is None else given.member(Priority, priority, "--priority")
    with given.opened(url) as scheduler:
        builder: JobBuilder[Any] = JobBuilder(scheduler.backend, function, tuple(positional), named)
        builder.with_priority(chosen)
        if queue is not None:
            builder.with_queue(queue)
        handle = builder.submit()
    Output(as_json=json).say(str(handle.id), id=handle.id, target=target)


def _json(text: str, kind: type, option: str, form: str) -> Any:
    try:
        value = loads(text)
    except (JSONDecodeError, RecursionError) as error:
        raise typer.BadParameter(f"{text!r} is not JSON ({error}); write {form}", param_hint=option) from None
    if not isinstance(value, kind):
        raise typer.BadParameter(f"{text!r} is not {form}", param_hint=option)
    return value
