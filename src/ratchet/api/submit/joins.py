"""`Join` and its builder: a job that waits for several others."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, overload
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.checks import count_of
from ratchet.api.observe.handles import JobHandle
from ratchet.api.submit.builders import AsyncJobBuilder, Draft, GraphDraft, JobBuilder, Joined
from ratchet.api.submit.forms import ArgumentMissing, PlainT
from ratchet.model.errors import InvalidJob
from ratchet.model.status import Busy

P = ParamSpec("P")
R = TypeVar("R")


class Join:
    """How many of the joined jobs must succeed: `Join.ALL`, or ``Join.at_least(n)``."""

    __slots__ = ("count",)

    #: Every joined job must succeed.
    ALL: ClassVar[Join]

    def __init__(self, count: int | None = None) -> None:
        self.count = count

    @classmethod
    def at_least(cls, count: int) -> Join:
        """So many of the joined jobs must succeed; the rest may fail or still be running."""
        return cls(count_of(count, "Join.at_least(n)", at_least=1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Join) and other.count == self.count

    def __hash__(self) -> int:
        return hash(self.count)

    def __repr__(self) -> str:
        return "Join.ALL" if self.count is None else f"Join.at_least({self.count})"


Join.ALL = Join()


class JoinDraft(Draft):
    """Jobs to wait for; the job that waits is not named yet."""

    _VERB = "then(...).submit()"

    def __init__(self, backend: Backend, parents: Iterable[Any], join: Join) -> None:
        self._armed = False
        found = [_parent(parent) for parent in parents]
        if not isinstance(join, Join):
            raise InvalidJob(f"join takes Join.ALL or Join.at_least(n), not {join!r}")
        if not found:
            raise InvalidJob("a join needs at least one job to wait for")
        if len({id(p) if isinstance(p, GraphDraft) else p for p in found}) < len(found):
            raise InvalidJob("a join names each job once")
        needs = len(found) if join.count is None else join.count
        if needs > len(found):
            raise InvalidJob(f"{join!r} cannot be fulfilled: only {len(found)} jobs are joined")
        super().__init__(backend)
        self._joined = Joined(found, needs)

    def _label(self) -> str:
        return f"a join of {len(self._joined.parents)} jobs"

    def _take(self) -> Joined:
        self._spend("continued with then(...)")
        return self._joined


class JoinBuilder(JoinDraft):
    """Jobs to wait for; ``then`` names the job that waits."""

    @overload
    def then(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobBuilder[R]: ...
    @overload
    def then(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobBuilder[R]: ...
    @overload
    def then(
        self, target: Callable[Concatenate[PlainT, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def then(
        self, target: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobBuilder[R]: ...
    def then(  # type: ignore[misc]  # one form is an error for type checkers only
        self, target: Any, /, *args: Any, **kwargs: Any
    ) -> JobBuilder[Any]:
        """The job that runs when enough have succeeded; RESULTS stands for the list of what they returned."""
        return JobBuilder(self._backend, target, args, kwargs, joined=self._take())


class AsyncJoinBuilder(JoinDraft):
    """A `JoinBuilder` that leads to an awaited ``submit()``; made by ``scheduler.aio.join``."""

    @overload
    def then(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJobBuilder[R]: ...
    @overload
    def then(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJobBuilder[R]: ...
    @overload
    def then(
        self, target: Callable[Concatenate[PlainT, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def then(
        self, target: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJobBuilder[R]: ...
    def then(  # type: ignore[misc]  # one form is an error for type checkers only
        self, target: Any, /, *args: Any, **kwargs: Any
    ) -> AsyncJobBuilder[Any]:
        """See `JoinBuilder.then`."""
        return AsyncJobBuilder(self._backend, target, args, kwargs, joined=self._take())


def _parent(parent: Any) -> UUID | GraphDraft[Any]:
    if isinstance(parent, JobHandle):
        return parent.id
    if isinstance(parent, UUID):
        return parent
    if not isinstance(parent, GraphDraft):
        raise InvalidJob(f"a join takes handles, ids and builders, not {parent!r}")
    parent._require_open()
    if parent._whole.idempotency_key is not None or parent._whole.busy is not Busy.RAISE:
        raise InvalidJob(
            "a builder whose key may name an older job cannot be joined before it is stored; "
            "submit it and join its handle"
        )
    return parent
