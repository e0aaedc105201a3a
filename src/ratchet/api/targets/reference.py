"""`TargetReference`: a target as the database knows it, beside the function it means here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ratchet.api.targets.declaration import JobDeclaration
from ratchet.api.targets.names import MAIN
from ratchet.model.errors import InvalidJob
from ratchet.model.payload import ParameterTypes
from ratchet.model.status import Lane
from ratchet.spi.invocation_resolver import Invocation


@dataclass(frozen=True, slots=True)
class TargetReference:
    """A target as the database will know it, beside the function it means in this process."""

    name: str
    function: Callable[..., Any]
    is_coroutine: bool
    lane: Lane
    #: The class whose instance the method needs, and the method's name; None for all else.
    owner: type | None = None
    method: str | None = None
    #: The target lives in ``__main__``: only nodes started from the same script can run it.
    in_main: bool = False
    declaration: JobDeclaration | None = None

    @classmethod
    def to(
        cls,
        name: str,
        function: Callable[..., Any],
        *,
        owner: type | None = None,
        method: str | None = None,
        declaration: JobDeclaration | None = None,
    ) -> TargetReference:
        """The reference to *function*, which runs in its natural lane or in the one it was declared for."""
        is_coroutine = inspect.iscoroutinefunction(function)
        return cls(
            name=name,
            function=function,
            is_coroutine=is_coroutine,
            lane=_lane(name, is_coroutine, declaration),
            owner=owner,
            method=method,
            in_main=name.startswith(f"{MAIN}:"),
            declaration=declaration,
        )

    def invocation(self) -> Invocation:
        """What a worker calls."""
        return Invocation(
            target=self.name,
            function=self.function,
            is_coroutine=self.is_coroutine,
            lane=self.lane,
            owner=self.owner,
            method=self.method,
            parameters=ParameterTypes.of(self.function, skip_first=self.owner is not None),
            no_retry_for=self.declaration.no_retry_for if self.declaration else (),
        )


def _lane(name: str, is_coroutine: bool, declaration: JobDeclaration | None) -> Lane:
    natural = Lane.ASYNC if is_coroutine else Lane.THREAD
    if declaration is None or declaration.lane is None:
        return natural
    if declaration.lane not in (natural, Lane.PROCESS):
        kind = "async def" if is_coroutine else "a plain function"
        raise InvalidJob(
            f"{name} is {kind} and cannot run in the {declaration.lane} lane; leave lane out, or use lane='process'"
        )
    return Lane(declaration.lane)
