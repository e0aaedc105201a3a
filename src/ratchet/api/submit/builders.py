"""
Builders: a job, a chain or a workflow while it is being described.

Nothing is stored before ``submit()``. ``with_…`` configures the step named last; keys, due time
and signal belong to the whole and come before the first ``then``. `Draft` and `StepDraft` are what
the builders of batches and joins have in common with these.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.checks import (
    count_of,
    exceptions_of,
    fraction_of,
    member_of,
    moment_of,
    priority_of,
    queue_of,
    resource_of,
    tags_of,
    text_of,
)
from ratchet.api.observe.handles import JobHandle
from ratchet.api.submit.conditions import Condition
from ratchet.api.submit.following import Following
from ratchet.api.submit.sending import send
from ratchet.api.submit.steps import LONGEST_LINE, MOST_TURNS, Composition, FairnessKey, Step, class_names
from ratchet.api.threads import AwaitFace, awaited, joining
from ratchet.model.callbacks import RESERVED
from ratchet.model.cluster import RATE_GATE, KeyLimit
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import InvalidJob, UnsubmittedJobWarning
from ratchet.model.job import KEY_LIMIT, Insertion
from ratchet.model.status import BackoffPolicy, Busy, Priority

if TYPE_CHECKING:
    from ratchet.api.context import JobContext
    from ratchet.model.results import JobError

R = TypeVar("R")

_PACKAGE = __name__.partition(".")[0]


# --- what all builders have in common -------------------------------------------------------------


class Draft:
    """
    Something that is being described and not yet stored.

    It warns if it is dropped without its last verb (``submit``, ``start``), unless a verb was refused:
    then the caller knows already.
    """

    _VERB = "submit()"

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._spent: str | None = None
        self._armed = True
        self._origin = _caller()

    def _label(self) -> str:
        return type(self).__name__

    def _require_open(self) -> None:
        if self._spent is not None:
            raise InvalidJob(f"this {type(self).__name__} was already {self._spent}; make a new one")

    def _spend(self, how: str) -> None:
        self._require_open()
        self._spent = how
        self._armed = False

    def _disarm(self) -> None:
        self._armed = False

    def _editing(self) -> _Editing:
        return _Editing(self)

    def __del__(self) -> None:
        # __init__ may have raised halfway; nobody needs the warning when the process ends
        if not getattr(self, "_armed", False) or sys.is_finalizing() or sys.exc_info()[0] is not None:
            return
        filename, line = self._origin
        warnings.warn_explicit(
            f"{self._label()} was dropped without {self._VERB}: nothing was stored",
            UnsubmittedJobWarning,
            filename,
            line,
        )


class _Editing:
    """Surrounds one change of a draft: refuses it if the draft is spent, and disarms its warning on an error."""

    __slots__ = ("_draft",)

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def __enter__(self) -> None:
        self._draft._require_open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._draft._disarm()


def _caller() -> tuple[str, int]:
    """File and line of the caller outside of this package."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class StepDraft(Draft):
    """
    A draft with a step that ``with_…`` configures: the one named last.

    What ``@scheduler.job`` declared is the default. Each ``with_…`` takes it back for this job too: ``with_timeout(None)``,
    ``with_resource(None)``, ``with_queue(None)``, ``with_priority(None)``, ``with_tags(None)``, ``with_max_retries(0)``,
    ``with_backoff(BackoffPolicy.NONE)``, ``with_no_retry_for()``.
    """

    _step: Step

    def with_priority(self, priority: Priority | None) -> Self:
        """How urgent the job is, LOWEST to CRITICAL; while it waits its effective priority rises. None: NORMAL."""
        with self._editing():
            self._step.given["priority"] = Priority.NORMAL if priority is None else priority_of(priority)
        return self

    def with_max_retries(self, retries: int) -> Self:
        """How often the job runs again after a failure; 0: never."""
        with self._editing():
            self._step.given["max_retries"] = count_of(retries, "max_retries")
        return self

    def with_backoff(self, policy: BackoffPolicy, base: Duration = 0, *, jitter: float = 0.0) -> Self:
        """How long it waits before a retry: FIXED *base*, or EXPONENTIAL from *base* on; *jitter* spreads it. NONE: not at all."""
        with self._editing():
            self._step.given |= backoff_settings(policy, base, jitter)
        return self

    def with_timeout(self, timeout: Duration | None) -> Self:
        """How long one run may take; after that it is stopped and fails. None: as long as it likes."""
        with self._editing():
            limit = None if timeout is None else to_timedelta(timeout, "the timeout", zero=False)
            self._step.given["timeout"] = limit
        return self

    def with_expiry(self, expiry: Duration) -> Self:
        """How long after submit the job may still start; after that it is CANCELED."""
        with self._editing():
            self._step.given["expiry"] = to_timedelta(expiry, "the expiry", zero=False)
        return self

    def with_tags(self, *tags: str | None) -> Self:
        """Words to find the job by, in addition to those it has; None as the first takes those away."""
        with self._editing():
            if tags and tags[0] is None:
                tags = tags[1:]
                self._step.given["tags"] = self._step.tags = ()
            self._step.tags = (*self._step.tags, *tags_of(tags))
        return self

    def with_param(self, name: str, value: Any) -> Self:
        """A value that is not an argument; the job reads it with ``ctx.param(name)``."""
        with self._editing():
            self._step.params[param_name(name)] = value
        return self

    def with_resource(self, name: str | None) -> Self:
        """What the job uses: ``scheduler.limits`` says how many may use it at once. None: nothing that is limited."""
        with self._editing():
            self._step.given["resource"] = None if name is None else resource_of(name)
        return self

    def with_queue(self, name: str | None) -> Self:
        """The queue the job waits in; nodes may serve some queues only, and a queue can be paused. None: the default queue."""
        with self._editing():
            self._step.given["queue"] = None if name is None else queue_of(name)
        return self

    def with_concurrency_key(self, key: str, *, limit: int) -> Self:
        """At most *limit* jobs with this key run at once, in the whole cluster."""
        with self._editing():
            name = resource_of(key, "a concurrency key")
            most = count_of(limit, "the limit of a concurrency key", at_least=1)
            self._step.limits[name] = KeyLimit(concurrent=most)
            self._step.given["limit_key"] = name
        return self

    def with_rate_key(self, key: str, rate: int, *, per: Duration = 1.0) -> Self:
        """
        At most *rate* jobs with this key start within each period *per*, in the whole cluster.

        A job passes two limits at most: of a resource, a concurrency key and a rate key it can have two.
        """
        with self._editing():
            name = RATE_GATE + text_of(key, "a rate key", limit=KEY_LIMIT - len(RATE_GATE))
            most = count_of(rate, "the rate of a key", at_least=1)
            period = to_timedelta(per, "the period of a rate", zero=False)
            self._step.limits[name] = KeyLimit(rate=most, period=period)
            self._step.given["rate_key"] = name
        return self

    def with_fairness_key(self, key: str, *, weight: int = 1) -> Self:
        """
        Jobs of different keys take turns: a key with many jobs does not keep the others waiting.

        While it has jobs, a key of *weight* 3 gets three turns where one of weight 1 gets one.
        """
        with self._editing():
            turns = count_of(weight, "the weight of a fairness key", at_least=1, at_most=MOST_TURNS)
            name = text_of(key, "a fairness key", limit=KEY_LIMIT - (LONGEST_LINE if turns > 1 else 0))
            self._step.given["fairness_key"] = name if turns == 1 else FairnessKey(name, turns)
        return self

    def with_no_retry_for(self, *errors: type[BaseException]) -> Self:
        """Exceptions, with their subclasses, after which the job is not retried; without any: every error is."""
        with self._editing():
            self._step.given["no_retry_for"] = class_names(exceptions_of(errors, "with_no_retry_for"))
        return self

    def on_success(
        self,
        callback: Callable[[JobContext], Any] | Callable[[Any, JobContext], Any] | Callable[[], Any],
    ) -> Self:
        """
        Run ``callback(ctx)`` as a job of its own when the job has succeeded; importable, at least once.

        ``call(record, x)``, or a lambda that is one call, hands on more: it is called as ``record(ctx, x)``. RESULT
        stands for what the job returned.
        """
        with self._editing():
            self._step.given["on_success"] = callback
        return self

    def on_failure(
        self,
        callback: Callable[[JobContext, JobError], Any]
        | Callable[[Any, JobContext, JobError], Any]
        | Callable[[], Any],
    ) -> Self:
        """
        Run ``callback(ctx, error)`` as a job of its own when the job has failed for good.

        ``call(alert, x)``, or a lambda that is one call, hands on more: it is called as ``alert(ctx, error, x)``.
        """
        with self._editing():
            self._step.given["on_failure"] = callback
        return self


def param_name(name: object) -> str:
    """*name* as the name of a param; some names are taken."""
    text = text_of(name, "the name of a param")
    if text.startswith(RESERVED):
        raise InvalidJob(
            f"names of params that begin with {RESERVED!r} are reserved; choose another than {text!r}"
        )
    return text


def backoff_settings(policy: BackoffPolicy, base: Duration, jitter: float) -> dict[str, Any]:
    """A backoff, checked: it needs a base unless it is NONE."""
    kind = member_of(BackoffPolicy, policy, "a backoff policy")
    wait = to_timedelta(base, "the base of a backoff")
    if kind is not BackoffPolicy.NONE and not wait:
        raise InvalidJob(f"backoff {kind} needs a base longer than zero, such as timedelta(seconds=30)")
    return {
        "backoff": kind,
        "backoff_base": wait if kind is not BackoffPolicy.NONE else timedelta(),
        "jitter": fraction_of(jitter, "the jitter of a backoff"),
    }


# --- a job and what follows it --------------------------------------------------------------------


class Joined:
    """What the first step of a draft waits for: stored jobs, and drafts that are stored together with it."""

    def __init__(self, parents: list[UUID | GraphDraft[Any]], needs: int) -> None:
        self.parents = parents
        self.needs = needs

    @property
    def drafts(self) -> list[GraphDraft[Any]]:
        """The parents that are not stored yet."""
        return [parent for parent in self.parents if isinstance(parent, GraphDraft)]

    def compositions(self) -> list[UUID | Composition]:
        """The parents, as a `Composition` takes them."""
        return [parent if isinstance(parent, UUID) else parent._whole for parent in self.parents]


class GraphDraft(StepDraft, Following, Generic[R]):
    """A job with what follows it, as yet only described; see `JobBuilder`."""

    def __init__(
        self,
        backend: Backend,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        joined: Joined | None = None,
    ) -> None:
        self._armed = False  # until there is something to submit
        step = Step(target, args, kwargs)
        super().__init__(backend)
        self._step = step
        self._joined: list[GraphDraft[Any]] = [] if joined is None else joined.drafts
        self._whole = (
            Composition(backend, step)
            if joined is None
            else Composition(backend, step, joined.compositions(), joined.needs)
        )

    def _label(self) -> str:
        more = len(self._whole.steps) - 1
        return f"the job for {self._whole.first.label}" + (f" and {more} more" if more else "")

    def _disarm(self) -> None:
        super()._disarm()
        for draft in self._joined:
            draft._disarm()  # refused together with this one

    def _require_whole(self, what: str) -> None:
        if not self._whole.single:
            raise InvalidJob(
                f"{what} belongs to the whole and not to one step; say it before the first .then(...) or branch"
            )

    # --- the whole ---

    def with_idempotency_key(self, key: str | UUID) -> Self:
        """The same key gives the same job, for ever: a second submission returns a handle of the first job."""
        with self._editing():
            self._require_whole("an idempotency key")
            self._whole.idempotency_key = text_of(key, "an idempotency key")
        return self

    def with_business_key(self, key: str | UUID, busy: Busy = Busy.RAISE) -> Self:
        """
        At most one live job has this key.

        *busy* says what happens while another holds it: RAISE `BusinessKeyBusy`, RETURN the holder's
        handle, or REPLACE the holder, which is canceled.
        """
        with self._editing():
            self._require_whole("a business key")
            self._whole.business_key = text_of(key, "a business key")
            self._whole.busy = member_of(Busy, busy, "busy")
        return self

    def with_delay(self, delay: Duration) -> Self:
        """Due this long after submit."""
        with self._editing():
            self._require_whole("a delay")
            self._whole.delay, self._whole.due = to_timedelta(delay, "the delay"), None
        return self

    def at(self, when: datetime) -> Self:
        """Due at this time; one in the past is kept, as if the job had waited since then."""
        with self._editing():
            self._require_whole("the due time")
            self._whole.delay, self._whole.due = None, moment_of(when, "the due time")
        return self

    def immediate(self) -> Self:
        """Due at once: cancels a delay, and nodes are woken at submit."""
        with self._editing():
            self._require_whole("immediate()")
            self._whole.delay = self._whole.due = None
        return self

    def await_signal(self, key: str, timeout: Duration | None = None) -> Self:
        """Start only when ``scheduler.signal(key)`` is called; none within *timeout* is a failure."""
        with self._editing():
            self._require_whole("a signal")
            if self._whole.joins:
                raise InvalidJob(
                    "a join waits for its jobs and cannot wait for a signal too; add a .then(...)"
                )
            limit = None if timeout is None else to_timedelta(timeout, "the signal's timeout", zero=False)
            self._whole.signal = (text_of(key, "the key of a signal"), limit)
        return self

    # --- what follows ---

    def _then(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self:
        with self._editing():
            step = Step(target, args, kwargs)
            length = len(self._whole.trunk)
            if length >= self._backend.options.chain_depth_limit:
                raise InvalidJob(
                    f"the chain has {length} steps, the limit is Options.chain_depth_limit; "
                    f"let the last step submit the next chain"
                )
            self._whole.chain(step)
            self._step = step
        return self

    def _branch(
        self,
        condition: Condition,
        call: tuple[Any, tuple[Any, ...], dict[str, Any]],
        order: int,
        description: str | None,
    ) -> Self:
        with self._editing():
            step = Step(*call)
            if not isinstance(condition, Condition):
                raise InvalidJob(
                    f"a branch takes a Condition, such as Condition.custom(is_slow), not {condition!r}"
                )
            rank = count_of(order, "order", at_least=-1_000_000)
            text = None if description is None else text_of(description, "the description")
            self._whole.branch(condition, step, rank, text)
            self._step = step
        return self

    # --- stored ---

    def _handle(self, insertion: Insertion, target: str, *, uncommitted: bool) -> JobHandle[R]:
        """The handle of the first job, or of the older one that its key named."""
        if not insertion.created:
            return JobHandle(self._backend, insertion.job_id, duplicate=True, uncommitted=uncommitted)
        return JobHandle(
            self._backend,
            insertion.job_id,
            target=target,
            steps=[step.identified(self._backend) for step in self._whole.steps],
            last=self._whole.last.job_id,
            uncommitted=uncommitted,
        )

    def _submit(self, within: object | None) -> JobHandle[R]:
        with self._editing():
            now = self._backend.now()
            submission = self._whole.compile(now)
            insertions = send(self._backend, submission, now, within=within)
        self._spend_all("submitted")
        first = self._whole.first.job_id
        position = next(index for index, spec in enumerate(submission.specs) if spec.job_id is first)
        return self._handle(
            insertions[position], submission.specs[position].target, uncommitted=submission.uncommitted
        )

    def _spend_all(self, how: str) -> None:
        self._spend(how)
        for draft in self._joined:
            draft._spend_all(how)


class JobBuilder(GraphDraft[R]):
    """
    A job while it is being described; ``submit()`` stores it.

    Used once. After a `StoreUnavailable` it may be submitted again: its jobs keep their ids, so none
    is stored twice.
    """

    def submit(self, *, within: object | None = None) -> JobHandle[R]:
        """
        Store the job, with all that follows it, and return its handle.

        *within*: your own open transaction (a driver's connection, a SQLAlchemy session or connection,
        a pymongo session). The job then exists when and only when you commit.
        """
        return self._submit(within)

    @property
    def aio(self) -> AsyncSubmit[R]:
        """``await builder.aio.submit()``; takes a SQLAlchemy ``AsyncSession`` as *within*."""
        return AsyncSubmit(self)


class AsyncJobBuilder(GraphDraft[R]):
    """A `JobBuilder` whose ``submit()`` is awaited; made by ``scheduler.aio.enqueue``."""

    async def submit(self, *, within: object | None = None) -> JobHandle[R]:
        """See `JobBuilder.submit`."""
        return await joining(self._submit, within)


class AsyncSubmit(AwaitFace[JobBuilder[R]]):
    """``builder.aio``: the last verb of a `JobBuilder`, awaitable."""

    __slots__ = ()
    submit = awaited(JobBuilder[R].submit)
