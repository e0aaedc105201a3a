"""What the words of a command line become: text stays text, and only the rest is converted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

#: The annotations whose values are the words themselves.
_WORDS = (str, list[str])


def convert_only_what_needs_it(command: Any) -> None:
    """
    Let the parameters of *command*, and of the commands below it, keep words and defaults as they are.

    Typer converts every value with pydantic, also a default and a text: loading that takes a fifth of a short command.
    """
    if isinstance(command.get_help_option, partial):
        return  # done before
    command.get_help_option = partial(_help_option, command.get_help_option)
    for parameter in command.params:
        _let_be(parameter)
    for below in getattr(command, "commands", {}).values():
        convert_only_what_needs_it(below)


def _let_be(parameter: Any) -> None:
    parameter.process_value = partial(_processed, parameter, parameter.process_value)


def _help_option(find: Callable[[Any], Any], context: Any) -> Any:
    """``--help`` of a command, which is made when it is first asked for."""
    option = find(context)
    if option is not None and not isinstance(option.process_value, partial):
        _let_be(option)
    return option


def _processed(parameter: Any, convert: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    has_many = parameter.multiple or parameter.nargs != 1
    source = context.get_parameter_source(parameter.name)
    if source is not None and source.name == "DEFAULT" and not parameter.required:
        found = () if has_many and value is None else value
    elif _is_text(parameter, value):
        found = list(value) if has_many else value
    else:
        return convert(context, value)
    return found if parameter.callback is None else parameter.callback(context, parameter, found)


def _is_text(parameter: Any, value: Any) -> bool:
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    return kind in _WORDS and value is not None and all(isinstance(word, str) for word in value)
