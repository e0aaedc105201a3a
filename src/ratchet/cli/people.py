"""Who gives a command, and by which scheduler's rules: ``--as`` and ``--app``, which many commands have."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any, NamedTuple

import typer

As = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help="Who gives this command, for the audit log and the authorizer. Default: the user of the operating system.",
        show_default=False,
    ),
]
App = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="APP",
        help="Use the store and the authorizer of this scheduler, such as shop.jobs:scheduler.",
        show_default=False,
    ),
]


class Person(NamedTuple):
    """What the options say."""

    name: str | None = None
    app: str | None = None


#: Who gives the command that runs.
person: ContextVar[Person] = ContextVar("ratchet_person", default=Person())  # noqa: B039 - it cannot be changed


def user_name() -> str | None:
    """The user of the operating system; None if it has no name here."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run as a number that nothing names
        return None


def personal(command: Callable[..., Any], *, is_group: bool = False) -> Callable[..., Any]:
    """
    *command* with the options ``--as`` and ``--app``, if it opens a store.

    What stands before the name of a command, at its group, holds for the command too.
    """
    signature = inspect.signature(command, eval_str=True)
    if "url" not in signature.parameters:
        return command

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        outer = person.get()
        token = person.set(Person(values.pop("as_") or outer.name, values.pop("app") or outer.app))
        if is_group:  # its context ends after that of the command
            values["context"].call_on_close(lambda: person.reset(token))
            return command(**values)
        try:
            return command(**values)
        finally:
            person.reset(token)

    options = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=kind)
        for name, kind in (("as_", As), ("app", App))
    ]
    parameters = [*signature.parameters.values(), *options]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
