"""`Arguments`: whether a call fits its target's signature, found out where the mistake was made."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from ratchet.api.targets.reference import TargetReference
from ratchet.model.errors import InvalidJob

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Arguments:
    """Checks that arguments fit a target's signature; positional ones by counting alone."""

    def __init__(self, reference: TargetReference) -> None:
        self._name = reference.name
        self._receiver = (None,) if reference.owner is not None else ()
        self._fewest, self._most = 1, 0  # nothing passes by counting unless shown otherwise
        try:
            self._signature: inspect.Signature | None = _signature(reference.function)
        except (TypeError, ValueError):  # some functions written in C do not tell
            self._signature = None
            return
        kinds = [(p.kind, p.default is p.empty) for p in self._signature.parameters.values()]
        if not any(required and kind is inspect.Parameter.KEYWORD_ONLY for kind, required in kinds):
            positional = [r for kind, r in kinds if kind in _POSITIONAL]
            self._fewest = sum(positional) - len(self._receiver)
            self._most = len(positional) - len(self._receiver)

    def require(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise ``InvalidJob`` where calling the target with these arguments would be a TypeError."""
        if self._signature is None or (not kwargs and self._fewest <= len(args) <= self._most):
            return
        try:
            self._signature.bind(*self._receiver, *args, **kwargs)
        except TypeError as error:
            raise InvalidJob(f"the arguments do not fit {self._name}{self._signature}: {error}") from None


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        import annotationlib

        # A name that exists for type checkers only must not hide the parameters.
        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    else:
        return inspect.signature(function)
