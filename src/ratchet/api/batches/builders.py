"""
Builders of batches: many jobs of one target that are counted together.

The items are children of a BATCH_PARENT job, which has the batch's id and waits until all of them
have ended. What follows the batch follows that job, under conditions about the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.batches.handles import BatchHandle
from ratchet.api.batches.open_batches import OpenBatch, SubmitterLease
from ratchet.api.checks import count_of, fraction_of, text_of
from ratchet.api.submit.builders import StepDraft
from ratchet.api.submit.bulk import CHUNK, specs_for
from ratchet.api.submit.calls import Call, stored_callback
from ratchet.api.submit.conditions import Condition
from ratchet.api.submit.forms import ArgumentMissing, PlainT
from ratchet.api.submit.sending import joined_transaction, send, wake
from ratchet.api.submit.steps import Follower, Step, Submission
from ratchet.api.submit.tracing import Carried, producing_many
from ratchet.api.threads import AwaitFace, awaited, in_thread, joining
from ratchet.model.callbacks import RESERVED
from ratchet.model.composition import BatchSpec
from ratchet.model.errors import InvalidJob
from ratchet.model.job import JobSpec
from ratchet.model.payload import encode, encode_value
from ratchet.model.results import BatchContext
from ratchet.model.status import JobStatus, JobType

P = ParamSpec("P")
T = TypeVar("T")

#: The target of a BATCH_PARENT job. A worker calls nothing for it, only its conditions are evaluated.
BATCH_TARGET: Final = "ratchet:batch"
#: The most items of a batch that is stored whole; a larger one is stored in chunks and sealed at the end.
WHOLE: Final = 5000


class BatchDraft(StepDraft):
    """A batch as yet only described; ``with_…`` configures its items, or the follower named last."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._armed = False
        self._name_text = text_of(name, "the name of a batch")
        super().__init__(backend)
        self._source: Iterable[Any] = ()
        self._step = self._children = Step(_nothing, (), {})
        self._followers: list[Follower] = []
        self._parent = Step(_nothing, (), {})
        self._progress: Callable[..., Any] | None = None
        self._chunk = CHUNK
        self._pending: tuple[Submission, Iterator[Any] | None] | None = None
        self._carried: Carried | None = None  # the trace of the items, if a tracer follows them

    def _label(self) -> str:
        return f"the batch {self._name_text!r}"

    def on_progress(self, report: Callable[[BatchContext], Any] | Call[Any]) -> Self:
        """
        Call ``report(batch_context)``, an importable function, as items end; not once for each of them.

        ``call(report, x)``, or a lambda that is one call, hands on more: it is called as ``report(batch_context, x)``.
        """
        with self._editing():
            self._progress = report
        return self

    @overload
    def then_on_batch_success(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    @overload
    def then_on_batch_success(
        self, target: Callable[Concatenate[PlainT, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def then_on_batch_success(
        self, target: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    def then_on_batch_success(  # type: ignore[misc]  # one form is an error for type checkers only
        self, target: Any, /, *args: Any, **kwargs: Any
    ) -> Self:
        """Run *target* when every item has succeeded."""
        return self._follow(Condition.batch_success, target, args, kwargs)

    @overload
    def then_on_batch_failure(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    @overload
    def then_on_batch_failure(
        self, target: Callable[Concatenate[PlainT, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def then_on_batch_failure(
        self, target: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    def then_on_batch_failure(  # type: ignore[misc]  # one form is an error for type checkers only
        self, target: Any, /, *args: Any, **kwargs: Any
    ) -> Self:
        """Run *target* when all items have ended and some did not succeed."""
        return self._follow(Condition.batch_failure, target, args, kwargs)

    @overload
    def then_when_success_rate(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, rate: float, target: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    @overload
    def then_when_success_rate(
        self, rate: float, target: Callable[Concatenate[PlainT, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def then_when_success_rate(
        self, rate: float, target: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    def then_when_success_rate(  # type: ignore[misc]  # one form is an error for type checkers only
        self, rate: float, target: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Self:
        """Run *target* when at least this share (0 to 1) of the items succeeded."""
        return self._follow(
            lambda: Condition.success_rate(fraction_of(rate, "a success rate")), target, args, kwargs
        )

    @overload
    def then_when_failure_count(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, count: int, target: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    @overload
    def then_when_failure_count(
        self, count: int, target: Callable[Concatenate[PlainT, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def then_when_failure_count(
        self, count: int, target: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    def then_when_failure_count(  # type: ignore[misc]  # one form is an error for type checkers only
        self, count: int, target: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Self:
        """Run *target* when so many items or more failed."""
        return self._follow(
            lambda: Condition.failure_count(count_of(count, "a failure count", at_least=1)),
            target,
            args,
            kwargs,
        )

    @overload
    def then_when_batch(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self,
        predicate: Callable[[BatchContext], Any] | Call[Any],
        target: Callable[P, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Self: ...
    @overload
    def then_when_batch(
        self,
        predicate: Callable[[BatchContext], Any] | Call[Any],
        target: Callable[Concatenate[PlainT, P], Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> ArgumentMissing: ...
    @overload
    def then_when_batch(
        self,
        predicate: Callable[[BatchContext], Any] | Call[Any],
        target: Callable[Concatenate[Any, P], Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Self: ...
    def then_when_batch(  # type: ignore[misc]  # one form is an error for type checkers only
        self,
        predicate: Callable[[BatchContext], Any] | Call[Any],
        target: Callable[..., Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Self:
        """Run *target* when ``predicate(batch_context)``, an importable function, is true."""
        return self._follow(lambda: Condition.batch(predicate), target, args, kwargs)

    def _follow(
        self,
        condition: Callable[[], Condition],
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Self:
        with self._editing():
            step = Step(target, args, kwargs)
            self._followers.append(Follower(self._parent, step, condition()))
            self._step = step
        return self

    def _take(self, items: Iterable[Any], target: Any) -> None:
        if isinstance(target, Call):
            raise InvalidJob("each item is the one argument of the target; pass the function, not call(...)")
        if isinstance(items, str | bytes):
            raise InvalidJob(f"the items of a batch are a list or an iterator, not {items!r}")
        self._children.target = target
        self._source = items

    # --- becoming jobs ---

    def _store(self, within: object | None) -> BatchHandle:
        with self._editing():
            if self._children.target is _nothing:
                raise InvalidJob(f"the batch {self._name_text!r} has no items; say {self._wanted}")
            batch_id = self._parent.identified(self._backend)
            joined = joined_transaction(self._backend, within)
            if self._pending is None:
                self._pending = self._read(batch_id, None if joined is not None else self._first_chunk)
            submission, rest = self._pending
            with self._followed(submission, None if rest is not None else len(submission.specs)):
                if rest is None:
                    send(self._backend, submission, self._backend.now(), within=within, traced=True)
                else:
                    self._store_in_chunks(batch_id, submission, rest)
        if self._spent is None:
            self._spend("submitted")
        return BatchHandle(self._backend, batch_id, self._name_text)

    _wanted = ".for_each(items, function)"

    @contextmanager
    def _followed(self, submission: Submission, count: int | None) -> Iterator[None]:
        """Let the tracer see the batch as one submission, whose jobs get its trace."""
        tracer = self._backend.tracer
        if tracer is None or submission.batch is None:
            yield
            return
        parent = submission.batch.parent
        first = next((spec for spec in submission.specs if spec.type is JobType.BATCH_CHILD), parent)
        with producing_many(tracer, first, count, batch_id=parent.job_id) as carried:
            carried.whole(submission)
            self._carried = carried
            yield

    def _check_items(self) -> None:
        """Do nothing: an iterator cannot be read twice."""

    @property
    def _first_chunk(self) -> int:
        return WHOLE

    def _read(self, batch_id: UUID, most: int | None) -> tuple[Submission, Iterator[Any] | None]:
        """
        What is stored first, and the items that are left to read, if any.

        The caller keeps it, so that after a `StoreUnavailable` the same jobs are sent with the same ids.
        """
        self._check_items()
        items = iter(self._source)
        head = list(islice(items, most))
        rest = list(islice(items, 1))
        submission = self._submission(batch_id, head, sealed=not rest)
        return submission, chain(rest, items) if rest else None

    def _submission(self, batch_id: UUID, items: Sequence[Any], *, sealed: bool) -> Submission:
        """The batch, its parent, what follows it, and the first items: all or none."""
        now = self._backend.now()
        parent_id = self._parent.identified(self._backend)
        caller = self._backend.caller()
        progress, arguments = self._progress_call()
        params = None
        if arguments is not None:
            params = encode_value(
                {RESERVED + "on_progress": arguments},
                name="the arguments of on_progress",
                limit=self._backend.options.payload_limit,
            )
        parent = JobSpec(
            job_id=parent_id,
            target=BATCH_TARGET,
            payload=encode((), {}),
            scheduled_at=now,
            status=JobStatus.WAITING,
            type=JobType.BATCH_PARENT,
            params=params,
            caller=caller,
        )
        submission = Submission(limits=dict(self._children.limits))
        submission.batch = BatchSpec(
            batch_id=batch_id,
            name=self._name_text,
            parent=parent,
            total=len(items),
            sealed=sealed,
            progress_target=progress,
        )
        for position, follower in enumerate(self._followers):
            submission.limits |= follower.step.limits
            submission.specs.append(follower.spec(self._backend, now, root=parent_id, caller=caller))
            submission.edges.append(follower.edge(self._backend, position))
        submission.specs += self._child_specs(batch_id, items)
        return submission

    def _child_specs(self, batch_id: UUID, items: Sequence[Any]) -> list[JobSpec]:
        if not items:
            return []
        return specs_for(
            self._backend,
            self._children,
            [(item,) for item in items],
            self._backend.now(),
            type=JobType.BATCH_CHILD,
            batch_id=batch_id,
            parent_id=self._parent.identified(self._backend),
        )

    def _progress_call(self) -> tuple[str | None, str | None]:
        return (None, None) if self._progress is None else stored_callback(self._backend, self._progress, 1)

    def _store_in_chunks(self, batch_id: UUID, submission: Submission, rest: Iterator[Any]) -> None:
        """
        Store the batch with its first items, the rest in chunks, then seal it.

        If the source raises, the batch is canceled: jobs that have not started never will, and no
        follower sees the success of a part. If this process dies, a node cancels it.
        """
        batch = OpenBatch(self._backend, batch_id, self._name_text)
        with SubmitterLease(self._backend, batch_id) as lease:
            send(self._backend, submission, self._backend.now(), traced=True)
            # A part is stored now, and its items cannot be read again.
            self._spend("started")
            submission.specs.clear()
            try:
                while chunk := list(islice(rest, self._chunk)):
                    lease.keep()
                    items = self._child_specs(batch_id, chunk)
                    batch.append(items if self._carried is None else self._carried.jobs(items))
                lease.keep()
            except BaseException as error:
                batch.give_up(error)
                raise
            batch.seal()
        wake(self._backend)


class EachDraft(BatchDraft):
    """A batch whose items are there when it is submitted."""

    def for_each(self, items: Iterable[T], target: Callable[[T], Any]) -> Self:
        """One job per item, which is the target's one argument."""
        with self._editing():
            self._take(items, target)
        return self

    def _check_items(self) -> None:
        """Refuse a bad item before the first is stored, also where they do not fit one transaction."""
        source = self._source
        if isinstance(source, Sequence) and len(source) > self._first_chunk:
            for start in range(0, len(source), CHUNK):
                self._child_specs(self._parent.identified(self._backend), source[start : start + CHUNK])


class BatchBuilder(EachDraft):
    """A batch while it is being described; ``submit()`` stores it."""

    def submit(self, *, within: object | None = None) -> BatchHandle:
        """Store the batch and return its handle; an empty one succeeds at once."""
        return self._store(within)

    @property
    def aio(self) -> AsyncBatchSubmit:
        """``await builder.aio.submit()``."""
        return AsyncBatchSubmit(self)


class AsyncBatchBuilder(EachDraft):
    """A `BatchBuilder` whose ``submit()`` is awaited; made by ``scheduler.aio.enqueue_batch``."""

    async def submit(self, *, within: object | None = None) -> BatchHandle:
        """See `BatchBuilder.submit`."""
        return await joining(self._store, within)


class AsyncBatchSubmit(AwaitFace[BatchBuilder]):
    """``builder.aio``: the last verb of a `BatchBuilder`, awaitable."""

    __slots__ = ()
    submit = awaited(BatchBuilder.submit)


class StreamDraft(BatchDraft):
    """A batch whose items are read while the first of them already run; memory stays flat."""

    _VERB = "start()"
    _wanted = ".from_iterable(items).process(function)"

    def from_iterable(self, items: Iterable[Any]) -> Self:
        """Where the items come from; read once, by ``start()``."""
        with self._editing():
            self._take(items, self._children.target)
        return self

    def process(self, target: Callable[[Any], Any]) -> Self:
        """The function that gets each item as its one argument."""
        with self._editing():
            self._take(self._source, target)
        return self

    def with_chunk_size(self, size: int) -> Self:
        """How many items are stored in one transaction."""
        with self._editing():
            self._chunk = count_of(size, "the chunk size", at_least=1, at_most=100_000)
        return self

    @property
    def _first_chunk(self) -> int:
        return self._chunk


class StreamingBatchBuilder(StreamDraft):
    """A streaming batch while it is being described; ``start()`` reads its items and stores them."""

    def start(self) -> BatchHandle:
        """Read and store all items, and return the batch's handle; a source that raises cancels the batch."""
        return self._store(None)

    @property
    def aio(self) -> AsyncBatchStart:
        """``await builder.aio.start()``."""
        return AsyncBatchStart(self)


class AsyncStreamingBatchBuilder(StreamDraft):
    """A `StreamingBatchBuilder` whose ``start()`` is awaited; made by ``scheduler.aio.streaming_batch``."""

    async def start(self) -> BatchHandle:
        """See `StreamingBatchBuilder.start`; the source is read on another thread."""
        return await in_thread(self._store, None)


class AsyncBatchStart(AwaitFace[StreamingBatchBuilder]):
    """``builder.aio``: the last verb of a `StreamingBatchBuilder`, awaitable."""

    __slots__ = ()
    start = awaited(StreamingBatchBuilder.start)


def _nothing() -> None:
    """The target of a batch for which none was named yet."""
