"""
A call as a value: `call(f, x)`, or a lambda that is one call; and how the calls of callbacks are stored.

A callback gets its leading arguments when it runs (its context, the error, a result), and after them what was
given here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ratchet.api.backend import Backend
from ratchet.api.submit.capture import capture, is_lambda
from ratchet.api.targets.registry import parameter_types
from ratchet.model.callbacks import WITH_ARGUMENTS
from ratchet.model.errors import InvalidJob
from ratchet.model.payload import RESULT, encode, placeholders_in

if TYPE_CHECKING:
    from ratchet.api.context import JobContext
    from ratchet.model.results import BatchContext, JobError, JobResult

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Call(Generic[R_co]):
    """A target and its arguments; accepted wherever a target is."""

    __slots__ = ("args", "kwargs", "target")

    def __init__(self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.target = target
        self.args = args
        self.kwargs = kwargs

    def __call__(self) -> R_co:
        """Call the target here and now, as a function without arguments would be."""
        result: R_co = self.target(*self.args, **self.kwargs)
        return result

    def __repr__(self) -> str:
        name = getattr(self.target, "__qualname__", repr(self.target))
        shown = [*map(repr, self.args), *(f"{key}={value!r}" for key, value in self.kwargs.items())]
        return f"call({', '.join([name, *shown])})"


@overload
def call(target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...
@overload
def call(
    target: Callable[Concatenate[JobContext, JobError, P], R], /, *args: P.args, **kwargs: P.kwargs
) -> Call[R]: ...
@overload
def call(
    target: Callable[Concatenate[JobContext, P], R], /, *args: P.args, **kwargs: P.kwargs
) -> Call[R]: ...
@overload
def call(target: Callable[Concatenate[JobResult, P], R], /, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...
@overload
def call(
    target: Callable[Concatenate[BatchContext, P], R], /, *args: P.args, **kwargs: P.kwargs
) -> Call[R]: ...
def call(target: Callable[..., R], /, *args: Any, **kwargs: Any) -> Call[R]:
    """
    ``target(*args, **kwargs)`` as a value, checked by the type checker and not called.

    For verbs that have keywords of their own: ``.when(is_slow, call(flag, order=7), order=1)``; and for
    callbacks that need more than they are told: ``.on_failure(call(alert, order_id))``.
    """
    return Call(target, args, kwargs)


def taken_apart(
    target: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function to store and its arguments; a lambda's variables are read now."""
    if isinstance(target, Call):
        target, args, kwargs = target.target, target.args, target.kwargs
    if is_lambda(target) and not (args or kwargs):
        found = capture(target)
        return found.function, found.args, found.kwargs
    return target, args, {} if kwargs is None else kwargs


def stored_callback(
    backend: Backend, callback: Any, leading: int, *, takes_result: bool = False
) -> tuple[str, str | None]:
    """
    What is stored of *callback*: its target, and the arguments that it gets after its *leading* ones, or None.

    A target with arguments is marked. A node of 0.1.0 would call it without them; it knows no target of that
    name, and leaves it to a node that does.
    """
    function, args, kwargs = taken_apart(callback)
    described = backend.targets.describe(function, ((None,) * leading) + args, kwargs)
    if not args and not kwargs:
        return described.target, None
    for placeholder in placeholders_in((args, kwargs)):
        if placeholder is not RESULT or not takes_result:
            raise InvalidJob(
                f"{placeholder} stands for {placeholder.stands_for}, and {described.target} is called without one; "
                f"only what on_success calls can take RESULT"
            )
    # With its leading arguments, so that each argument meets the annotation of its own parameter.
    text = encode(
        (None,) * leading + args,
        kwargs,
        limit=backend.options.payload_limit,
        types=parameter_types(function),
        allow_type=backend.allow_type,
    )
    return described.target + WITH_ARGUMENTS, text
