"""
`Following`: what follows a job, in the words of its builder.

The forms of each verb are for type checkers: they check the arguments of a step against its target, and a method
that is passed through its class is taken without its instance (see `ratchet.api.submit.forms`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Self, TypedDict, TypeVarTuple, Unpack, overload

from ratchet.api.submit.calls import Call
from ratchet.api.submit.conditions import Condition
from ratchet.api.submit.forms import ArgumentMissing, PlainT
from ratchet.model.results import JobResult

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")


class BranchOptions(TypedDict, total=False):
    """The keywords of a branch that are not its target's."""

    order: int
    description: str | None


class Following:
    """The verbs that add a step or a branch to what is being described."""

    def _then(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self:
        raise NotImplementedError

    def _branch(
        self,
        condition: Condition,
        call: tuple[Any, tuple[Any, ...], dict[str, Any]],
        order: int,
        description: str | None,
    ) -> Self:
        raise NotImplementedError

    @overload
    def then(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    @overload
    def then(
        self, target: Callable[Concatenate[PlainT, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def then(
        self, target: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    def then(  # type: ignore[misc]  # one form is an error for type checkers only
        self, target: Any, /, *args: Any, **kwargs: Any
    ) -> Self:
        """Add a step that runs when the step before it has succeeded; RESULT stands for what that returned."""
        return self._then(target, args, kwargs)

    @overload
    def then_on_success(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    @overload
    def then_on_success(
        self, target: Callable[Concatenate[PlainT, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def then_on_success(
        self, target: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    def then_on_success(  # type: ignore[misc]  # one form is an error for type checkers only
        self, target: Any, /, *args: Any, **kwargs: Any
    ) -> Self:
        """Add a branch that runs when the last ``then`` (or the first job) has succeeded."""
        return self._branch(Condition.success(), (target, args, kwargs), 0, None)

    @overload
    def then_on_failure(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    @overload
    def then_on_failure(
        self, target: Callable[Concatenate[PlainT, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def then_on_failure(
        self, target: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    def then_on_failure(  # type: ignore[misc]  # one form is an error for type checkers only
        self, target: Any, /, *args: Any, **kwargs: Any
    ) -> Self:
        """Add a branch that runs when the last ``then`` (or the first job) has failed for good."""
        return self._branch(Condition.failure(), (target, args, kwargs), 0, None)

    @overload
    def when(
        self,
        predicate: Callable[[JobResult], Any] | Call[Any],
        target: Callable[[], Any],
        /,
        **options: Unpack[BranchOptions],
    ) -> Self: ...
    @overload
    def when(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self,
        predicate: Callable[[JobResult], Any] | Call[Any],
        target: Callable[[*Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[BranchOptions],
    ) -> Self: ...
    @overload
    def when(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self,
        predicate: Callable[[JobResult], Any] | Call[Any],
        target: Callable[P, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Self: ...
    @overload
    def when(
        self,
        predicate: Callable[[JobResult], Any] | Call[Any],
        target: Callable[[PlainT, *Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[BranchOptions],
    ) -> ArgumentMissing: ...
    @overload
    def when(
        self,
        predicate: Callable[[JobResult], Any] | Call[Any],
        target: Callable[[Any, *Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[BranchOptions],
    ) -> Self: ...
    def when(  # type: ignore[misc]  # what is no option is an argument of the target
        self,
        predicate: Callable[[JobResult], Any] | Call[Any],
        target: Callable[..., Any],
        /,
        *args: Any,
        order: int = 0,
        description: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Add a branch that runs when ``predicate(job_result)`` is true; lower *order* is asked first."""
        return self._branch(Condition.custom(predicate), (target, args, kwargs), order, description)

    @overload
    def when_result(
        self,
        predicate: Callable[[Any], Any] | Call[Any],
        target: Callable[[], Any],
        /,
        **options: Unpack[BranchOptions],
    ) -> Self: ...
    @overload
    def when_result(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self,
        predicate: Callable[[Any], Any] | Call[Any],
        target: Callable[[*Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[BranchOptions],
    ) -> Self: ...
    @overload
    def when_result(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self,
        predicate: Callable[[Any], Any] | Call[Any],
        target: Callable[P, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Self: ...
    @overload
    def when_result(
        self,
        predicate: Callable[[Any], Any] | Call[Any],
        target: Callable[[PlainT, *Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[BranchOptions],
    ) -> ArgumentMissing: ...
    @overload
    def when_result(
        self,
        predicate: Callable[[Any], Any] | Call[Any],
        target: Callable[[Any, *Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[BranchOptions],
    ) -> Self: ...
    def when_result(  # type: ignore[misc]  # what is no option is an argument of the target
        self,
        predicate: Callable[[Any], Any] | Call[Any],
        target: Callable[..., Any],
        /,
        *args: Any,
        order: int = 0,
        description: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Add a branch that runs when the job succeeded and ``predicate(result)`` is true."""
        return self._branch(Condition.result(predicate), (target, args, kwargs), order, description)

    @overload
    def branch(
        self,
        condition: Condition,
        target: Callable[[], Any],
        /,
        **options: Unpack[BranchOptions],
    ) -> Self: ...
    @overload
    def branch(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self,
        condition: Condition,
        target: Callable[[*Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[BranchOptions],
    ) -> Self: ...
    @overload
    def branch(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self,
        condition: Condition,
        target: Callable[P, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Self: ...
    @overload
    def branch(
        self,
        condition: Condition,
        target: Callable[[PlainT, *Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[BranchOptions],
    ) -> ArgumentMissing: ...
    @overload
    def branch(
        self,
        condition: Condition,
        target: Callable[[Any, *Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[BranchOptions],
    ) -> Self: ...
    def branch(  # type: ignore[misc]  # what is no option is an argument of the target
        self,
        condition: Condition,
        target: Callable[..., Any],
        /,
        *args: Any,
        order: int = 0,
        description: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Add a branch that runs when *condition* holds; every branch whose condition holds runs."""
        return self._branch(condition, (target, args, kwargs), order, description)
