from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec import Struct

from ratchet.model.payload import ParameterTypes
from ratchet.model.status import Lane
from ratchet.spi.instance_resolver import InstanceResolver


class StoredCall(Struct, frozen=True):
    """What is kept of a call: a name that a worker can resolve, and the arguments as values."""

    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    lane: Lane = Lane.THREAD
    #: The target lives in ``__main__`` and can run only on nodes started from the same script.
    in_main: bool = False


@dataclass(frozen=True, slots=True)
class Invocation:
    """What a worker needs to run a stored target."""

    target: str
    function: Callable[..., Any]
    is_coroutine: bool
    lane: Lane
    #: The class and attribute of an instance method; both None where no instance is needed.
    owner: type | None = None
    method: str | None = None
    #: What the annotations say about the stored arguments, for reading them back.
    parameters: ParameterTypes = field(default_factory=ParameterTypes)
    no_retry_for: tuple[type[BaseException], ...] = ()

    def bind(self, instances: InstanceResolver) -> Callable[..., Any]:
        """
        What to call with the job's arguments.

        The method is looked up on the resolved instance, so that a subclass or proxy which the
        resolver chose has its say.
        """
        if self.owner is None or self.method is None:
            return self.function
        bound: Callable[..., Any] = getattr(instances.resolve(self.owner), self.method)
        return bound


class InvocationResolver(Protocol):
    """Turns a call into something storable at submit, and the stored name back into a callable."""

    def describe(
        self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> StoredCall:
        """
        The storable form of ``target(*args, **kwargs)``; nothing is called.

        Raises ``InvalidTarget`` where no worker could find *target*, ``TargetNotAllowed`` where the
        policy refuses it, ``InvalidJob`` where the arguments do not fit its signature.
        """
        ...

    def resolve(self, target: str) -> Invocation:
        """
        The invocation stored as *target*; imports its module if need be and if the policy allows.

        Raises ``TargetNotAllowed`` before importing anything, ``TargetNotFound`` where the module or
        the attribute is missing on this node. It is called for every run and must be cheap after
        the first.
        """
        ...
