"""
Builders: a job, a chain or a workflow while it is being described.

Nothing is stored before ``submit()``. ``with_…`` configures the step named last; keys, due time
and signal belong to the whole and come before the first ``then``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.checks import after, count_of, member_of, moment_of, text_of
from ratchet.api.conditions import Condition
from ratchet.api.drafts import StepDraft
from ratchet.api.handles import JobHandle
from ratchet.api.steps import Prepared, Step
from ratchet.api.submission import Submission, send
from ratchet.api.threads import joining
from ratchet.model.composition import Edge, EdgeKind
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import InvalidJob
from ratchet.model.job import Insertion, JobSpec, SignalWait
from ratchet.model.results import JobResult
from ratchet.model.status import Busy, JobStatus, JobType

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class Branch:
    """A step that follows another one under a condition."""

    parent: Step
    step: Step
    condition: Condition
    order: int
    description: str | None


class Joined:
    """What the first step of a draft waits for: jobs that exist, and drafts that are stored with it."""

    def __init__(
        self, parents: list[UUID | GraphDraft[Any]], needs: int, edge: EdgeKind = EdgeKind.SUCCESS
    ) -> None:
        self.parents = parents
        self.needs = needs
        self.edge = edge

    @property
    def drafts(self) -> list[GraphDraft[Any]]:
        """The parents that are not stored yet."""
        return [parent for parent in self.parents if isinstance(parent, GraphDraft)]

    def edges(self, child: UUID) -> list[Edge]:
        """One edge per parent, in the order in which RESULTS lists them."""
        return [
            Edge(
                parent_id=parent if isinstance(parent, UUID) else parent._end(),
                child_id=child,
                kind=self.edge,
                position=position,
            )
            for position, parent in enumerate(self.parents)
        ]


class GraphDraft(StepDraft, Generic[R]):
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
        self._trunk = [step]
        self._named = [step]
        self._branches: list[Branch] = []
        self._joined = joined
        self._delay: Duration | None = None
        self._due: datetime | None = None
        self._idempotency_key: str | None = None
        self._business_key: str | None = None
        self._busy = Busy.RAISE
        self._signal: tuple[str, Duration | None] | None = None

    def _label(self) -> str:
        more = f" and {len(self._named) - 1} more" if len(self._named) > 1 else ""
        return f"the job for {self._trunk[0].label}{more}"

    def _disarm(self) -> None:
        super()._disarm()
        for draft in self._joined.drafts if self._joined is not None else ():
            draft._disarm()  # refused together with this one

    def _require_whole(self, what: str) -> None:
        if len(self._named) > 1:
            raise InvalidJob(
                f"{what} belongs to the whole and not to one step; say it before the first .then(...) or branch"
            )

    # --- the whole ---

    def with_idempotency_key(self, key: str | UUID) -> Self:
        """The same key gives the same job, for ever: a second submission returns the first one's handle."""
        with self._editing():
            self._require_whole("an idempotency key")
            self._idempotency_key = text_of(key, "an idempotency key")
        return self

    def with_business_key(self, key: str | UUID, busy: Busy = Busy.RAISE) -> Self:
        """
        At most one live job has this key.

        *busy* says what happens while another holds it: RAISE `BusinessKeyBusy`, RETURN the holder's
        handle, or REPLACE the holder, which is canceled.
        """
        with self._editing():
            self._require_whole("a business key")
            self._business_key = text_of(key, "a business key")
            self._busy = member_of(Busy, busy, "busy")
        return self

    def with_delay(self, delay: Duration) -> Self:
        """Due this long after submit."""
        with self._editing():
            self._require_whole("a delay")
            self._delay, self._due = to_timedelta(delay, "the delay"), None
        return self

    def at(self, when: datetime) -> Self:
        """Due at this time; one in the past is kept, the job has then been waiting since."""
        with self._editing():
            self._require_whole("the due time")
            self._delay, self._due = None, moment_of(when, "the due time")
        return self

    def immediate(self) -> Self:
        """Due at once: takes back a delay, and wakes the nodes when it is submitted."""
        with self._editing():
            self._require_whole("immediate()")
            self._delay = self._due = None
        return self

    def await_signal(self, key: str, timeout: Duration | None = None) -> Self:
        """Start only when ``scheduler.signal(key)`` is called; none within *timeout* is a failure."""
        with self._editing():
            self._require_whole("a signal")
            if self._joined is not None:
                raise InvalidJob(
                    "a join waits for its jobs and cannot wait for a signal too; add a .then(...)"
                )
            limit = None if timeout is None else to_timedelta(timeout, "the signal's timeout", zero=False)
            self._signal = (text_of(key, "the key of a signal"), limit)
        return self

    # --- what follows ---

    @overload
    def then(self, target: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Self: ...
    @overload
    def then(
        self, target: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    def then(self, target: Any, /, *args: Any, **kwargs: Any) -> Self:
        """Add a step that runs when the step before it has succeeded; RESULT stands for what that returned."""
        with self._editing():
            step = Step(target, args, kwargs)
            if len(self._trunk) >= self._backend.options.chain_depth_limit:
                raise InvalidJob(
                    f"the chain has {len(self._trunk)} steps, the limit is Options.chain_depth_limit; "
                    f"let the last step submit the next chain"
                )
            self._trunk.append(step)
            self._name(step)
        return self

    @overload
    def then_on_success(self, target: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Self: ...
    @overload
    def then_on_success(
        self, target: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    def then_on_success(self, target: Any, /, *args: Any, **kwargs: Any) -> Self:
        """Add a branch that runs when the last ``then`` (or the first job) has succeeded."""
        return self._branch(Condition.success(), (target, args, kwargs), 0, None)

    @overload
    def then_on_failure(self, target: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Self: ...
    @overload
    def then_on_failure(
        self, target: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Self: ...
    def then_on_failure(self, target: Any, /, *args: Any, **kwargs: Any) -> Self:
        """Add a branch that runs when the last ``then`` (or the first job) has failed for good."""
        return self._branch(Condition.failure(), (target, args, kwargs), 0, None)

    def when(
        self,
        predicate: Callable[[JobResult], Any],
        target: Callable[..., Any],
        /,
        *args: Any,
        order: int = 0,
        description: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Add a branch that runs when ``predicate(job_result)`` is true; lower *order* is asked first."""
        return self._branch(Condition.custom(predicate), (target, args, kwargs), order, description)

    def when_result(
        self,
        predicate: Callable[[Any], Any],
        target: Callable[..., Any],
        /,
        *args: Any,
        order: int = 0,
        description: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Add a branch that runs when the job succeeded and ``predicate(result)`` is true."""
        return self._branch(Condition.result(predicate), (target, args, kwargs), order, description)

    def branch(
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
            self._branches.append(Branch(self._trunk[-1], step, condition, rank, text))
            self._name(step)
        return self

    def _name(self, step: Step) -> None:
        self._named.append(step)
        self._step = step

    # --- becoming a submission ---

    def _compile(self, now: datetime, root: UUID | None = None) -> Submission:
        """Specs and edges, in the order the steps were named; *root* where it is part of a larger graph."""
        if root is None and self._joined is None and len(self._named) == 1:
            step = self._step
            return Submission([self._only_spec(step, now)], limits=dict(step.limits))
        submission = Submission()
        first = self._trunk[0].identified(self._backend)
        if self._joined is not None:
            for parent in self._joined.drafts:
                submission.add(parent._compile(now, root or first))
        caller = self._backend.caller()
        parents = self._parents()
        for step in self._named:
            submission.limits |= step.limits
            submission.specs.append(self._spec(step, now, root or first, caller, parents))
        submission.edges += self._edges(parents)
        return submission

    def _only_spec(self, step: Step, now: datetime) -> JobSpec:
        """The job of a draft that is nothing else."""
        prepared = step.prepare(self._backend)
        job_id = step.identified(self._backend)
        return prepared.spec(job_id, now, caller=self._backend.caller(), **self._first(prepared, now))

    def _parents(self) -> dict[Step, tuple[Step, Branch | None]]:
        """What each step but the first follows, and the branch it is, if it is one."""
        parents: dict[Step, tuple[Step, Branch | None]] = {
            step: (self._trunk[index], None) for index, step in enumerate(self._trunk[1:])
        }
        parents |= {branch.step: (branch.parent, branch) for branch in self._branches}
        return parents

    def _spec(
        self,
        step: Step,
        now: datetime,
        root: UUID,
        caller: str | None,
        parents: dict[Step, tuple[Step, Branch | None]],
    ) -> JobSpec:
        prepared = step.prepare(self._backend)
        job_id = step.identified(self._backend)
        common: dict[str, Any] = {"caller": caller}
        if len(self._named) > 1 or root != job_id:
            common["root_id"] = root
        if step is self._trunk[0]:
            return prepared.spec(job_id, now, **common, **self._first(prepared, now))
        parent, branch = parents[step]
        return prepared.spec(
            job_id,
            now,
            **common,
            status=JobStatus.WAITING,
            type=JobType.CHAIN_STEP if branch is None else JobType.WORKFLOW_BRANCH,
            parent_id=parent.identified(self._backend),
            needs=1,
        )

    def _first(self, prepared: Prepared, now: datetime) -> dict[str, Any]:
        given: dict[str, Any] = {"scheduled_at": self._due_at(now)}
        if self._idempotency_key is not None:
            given["idempotency_key"] = self._idempotency_key
        if self._business_key is not None:
            given |= {"business_key": self._business_key, "busy": self._busy}
        if len(self._trunk) > 1:
            given["type"] = JobType.CHAIN_STEP
        if self._joined is not None:
            given |= {
                "type": JobType.WORKFLOW_JOIN,
                "status": JobStatus.WAITING,
                "needs": self._joined.needs,
            }
            return given
        prepared.require_no_placeholders()
        if self._signal is not None:
            key, limit = self._signal
            deadline = None if limit is None else after(now, limit, "the signal's timeout")
            given |= {"status": JobStatus.WAITING, "signal": SignalWait(key=key, deadline=deadline)}
        return given

    def _due_at(self, now: datetime) -> datetime:
        if self._due is not None:
            return self._due
        return now if self._delay is None else after(now, self._delay, "the delay")

    def _edges(self, parents: dict[Step, tuple[Step, Branch | None]]) -> list[Edge]:
        edges = [] if self._joined is None else self._joined.edges(self._trunk[0].identified(self._backend))
        places: dict[Step, int] = {}
        for step in self._named[1:]:
            parent, branch = parents[step]
            place = places[parent] = places.get(parent, -1) + 1
            edges.append(self._edge(parent, step, place, branch))
        return edges

    def _edge(self, parent: Step, child: Step, position: int, branch: Branch | None) -> Edge:
        condition = branch.condition if branch is not None else Condition.success()
        return Edge(
            parent_id=parent.identified(self._backend),
            child_id=child.identified(self._backend),
            kind=condition.edge,
            position=position,
            condition=condition.stored(
                self._backend,
                order=branch.order if branch is not None else 0,
                description=branch.description if branch is not None else None,
            ),
        )

    def _end(self) -> UUID:
        """The id of the chain's last step."""
        return self._trunk[-1].identified(self._backend)

    def _handle(self, insertion: Insertion, target: str) -> JobHandle[R]:
        """The handle of the first job, or of the older one that its key named."""
        if not insertion.created:
            return JobHandle(self._backend, insertion.job_id, duplicate=True)
        return JobHandle(
            self._backend,
            insertion.job_id,
            target=target,
            steps=[step.identified(self._backend) for step in self._named],
            last=self._trunk[-1].job_id,
        )

    def _submit(self, within: object | None) -> JobHandle[R]:
        with self._editing():
            now = self._backend.now()
            submission = self._compile(now)
            insertions = send(self._backend, submission, now, within=within)
        self._spend_all("submitted")
        first = self._trunk[0].job_id
        position = next(index for index, spec in enumerate(submission.specs) if spec.job_id is first)
        return self._handle(insertions[position], submission.specs[position].target)

    def _spend_all(self, how: str) -> None:
        self._spend(how)
        for draft in self._joined.drafts if self._joined is not None else ():
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
        """Store the job, with all that follows it, and return its handle."""
        return await joining(self._submit, within)


class AsyncSubmit(Generic[R]):
    """The awaitable last verb of a builder."""

    __slots__ = ("_builder",)

    def __init__(self, builder: JobBuilder[R]) -> None:
        self._builder = builder

    async def submit(self, *, within: object | None = None) -> JobHandle[R]:
        """See `JobBuilder.submit`."""
        return await joining(self._builder._submit, within)
