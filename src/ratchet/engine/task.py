"""
The twelve steps of one job, in order.

A lane calls `prepare` (steps 1 to 8), invokes what it returns in its own way (step 9: on its
thread, awaited on the event loop, in a process) and gives the outcome to the completer, which calls `decide`
(step 10) and writes what follows (steps 11 and 12).
No step runs inside a transaction: a connection is not held while a job runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias, cast
from uuid import UUID

from ratchet.api.context import JobContext, JobTransaction
from ratchet.api.targets.registry import protection_of
from ratchet.engine.conditions import ConditionCheck
from ratchet.engine.decide import Decider
from ratchet.engine.run import Run, RunEnd, Stop
from ratchet.engine.start_check import StartCheck
from ratchet.engine.started_runs import StartedRuns
from ratchet.engine.transaction import run_in_transaction
from ratchet.engine.unreadable import outcome_of_unreadable
from ratchet.model.breaker import Guard
from ratchet.model.callbacks import RETRIES, callback_for, kept_arguments, plain_target
from ratchet.model.clock import Clock
from ratchet.model.decision import (
    BadCheckpoint,
    Completion,
    Confirm,
    CountCrash,
    Decision,
    Fail,
    HandBack,
    Interrupted,
    NotStarted,
    Outcome,
    Postponed,
    Raised,
    Reschedule,
    Retry,
    Returned,
    Succeed,
    TargetMissing,
    TimedOut,
    Unreadable,
    Unstorable,
    Verdict,
)
from ratchet.model.errors import (
    Conflict,
    JobInterrupted,
    JobTimeout,
    MissingKey,
    RatchetError,
    RetryLater,
    StoreUnavailable,
    TargetNotAllowed,
    TargetNotFound,
    UnreadablePayload,
    is_of_store,
)
from ratchet.model.identifiers import IdSource
from ratchet.model.payload import (
    READ_LIMIT,
    RESULTS,
    AllowType,
    decode,
    decode_result,
    encode_result,
    placeholders_in,
    refuse_sealed,
    substitute,
    truncation,
)
from ratchet.model.results import JobError
from ratchet.model.status import JobType
from ratchet.spi.error_sanitizer import ErrorSanitizer
from ratchet.spi.instance_resolver import InstanceResolver
from ratchet.spi.invocation_resolver import Invocation, InvocationResolver
from ratchet.spi.resilience import ResilienceStrategy
from ratchet.spi.store import JobStore
from ratchet.spi.store.transitions import JobStatusStore
from ratchet.spi.tracer import RemoteScope

logger = logging.getLogger("ratchet.engine")

Middleware: TypeAlias = Callable[[JobContext], AbstractContextManager[Any]]

#: A run that the store failed in its transaction is repeated after so many seconds, then after twice as many,
FIRST_STORE_PAUSE = 0.5
#: up to this.
LONGEST_STORE_PAUSE = 30.0
#: Of so many jobs a node remembers how often that happened.
REMEMBERED_FAILURES = 1000

# A union would be built again for every job.
_COMPLETIONS = (Succeed, Retry, Fail, Reschedule, HandBack, CountCrash)


class Prepared:
    """A call that is ready to be made."""

    __slots__ = ("args", "function", "invocation", "kwargs")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        invocation: Invocation,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.invocation = invocation


class TaskTools:
    """What every run on this node shares."""

    def __init__(
        self,
        *,
        store: JobStore,
        clock: Clock,
        ids: IdSource,
        decider: Decider,
        invocations: InvocationResolver,
        instances: InstanceResolver,
        sanitizer: ErrorSanitizer,
        resilience: ResilienceStrategy,
        middleware: Sequence[Middleware] = (),
        allow_type: AllowType | None = None,
        result_limit: int = 64 * 1024,
        state_limit: int = 64 * 1024,
        read_limit: int = READ_LIMIT,
        condition_limit: float = 10.0,
        callback_retries: int = RETRIES,
        started_runs: StartedRuns | None = None,
    ) -> None:
        self.store = store
        self.transitions: JobStatusStore = store
        self.clock = clock
        self.ids = ids
        self.decider = decider
        self.invocations = invocations
        self.instances = instances
        self.sanitizer = sanitizer
        self.resilience = resilience
        self.middleware = middleware
        self.allow_type = allow_type
        self.result_limit = result_limit
        self.state_limit = state_limit
        self.read_limit = read_limit
        self.callback_retries = callback_retries
        self.conditions = ConditionCheck(self, condition_limit)
        self.starts = StartCheck(store, clock)
        self.started_runs = started_runs

    def transaction(self, run: Run, within: object | None) -> AbstractContextManager[JobTransaction]:
        """The block of ``ctx.transaction()``."""
        return run_in_transaction(run, self, within)


class Completing(Protocol):
    """Where finished runs go (the completer)."""

    def put(self, run: Run, outcome: Outcome) -> None:
        """Take over a run that has ended."""
        ...


class JobTask:
    """Runs jobs step by step; one instance serves all runs of a node."""

    def __init__(self, tools: TaskTools) -> None:
        self._tools = tools
        self._store_failures: dict[UUID, int] = {}  # in ctx.transaction(), by job, on this node

    @property
    def middleware(self) -> Sequence[Middleware]:
        """What is to surround each call, outermost first."""
        return self._tools.middleware

    def prepare(self, run: Run) -> Prepared | Outcome:
        """Steps 1 to 8: the call to make, or the outcome if there is nothing to call."""
        # 1-3 Logging context, body and JobContext: the lane has entered the run.
        body = run.job.body
        if run.job.unreadable is not None:
            return outcome_of_unreadable(run.job, self._tools.store)
        try:
            # 4 Canceled between the claim and now? A claim that has waited for long is read again.
            if self._tools.clock.monotonic() > run.trusted_until:
                self._tools.starts.confirm(run)
            if body.expires_at is not None and body.expires_at <= self._tools.clock.now():
                run.request_stop(Stop.EXPIRED)
            if run.stop is not None:
                return Interrupted(run.stop.value)
            # From here on code of the user may run, and may end this process.
            if self._tools.started_runs is not None:
                self._tools.started_runs.begin(run)
            # 5 Is the service behind the job available?
            if body.breaker is not None and not self._tools.resilience.permits(body.breaker):
                return Postponed(
                    self._tools.resilience.retry_after(body.breaker), False, f"breaker {body.breaker} is open"
                )
            # 6 The permit was taken with the claim, in one transaction.
            if run.job.claim.type is JobType.BATCH_PARENT:
                # Nothing to call: its end is the batch's end, and its conditions are asked in `finish`.
                run.begin(self._tools.clock.monotonic(), self._tools.clock.now())
                return Returned()
            # 7 May this target run here, and is it known? What this node lacks, another may have.
            try:
                target = body.target
                if run.job.claim.type is JobType.CALLBACK:
                    target = plain_target(target)
                invocation = self._tools.invocations.resolve(target)
            except (TargetNotFound, TargetNotAllowed) as error:
                return TargetMissing(str(error))
            # 8 What it is called on and with. Errors of this are the job's own, else it would be parked again and again.
            function = invocation.function
            if invocation.owner is not None:
                function = invocation.bind(self._tools.instances)
            args, kwargs = self._arguments(run, invocation)
        except (StoreUnavailable, Conflict):
            # Its claim or the results of its parents could not be read: that is no failure of the job.
            return NotStarted()
        except MissingKey as error:
            return TargetMissing(str(error), error.keys)
        except UnreadablePayload as error:
            return Unreadable(error)
        except BaseException as error:
            # A module or a constructor that calls sys.exit() fails its job. It must not end the lane's thread.
            return self.outcome_of_error(run, error)
        run.begin(self._tools.clock.monotonic(), self._tools.clock.now())
        return Prepared(function, args, kwargs, invocation)

    def confirm(self, run: Run) -> Outcome | None:
        """The beginning of step 4, for a lane whose thread must not wait for the store; None: go on."""
        try:
            self._tools.starts.confirm(run)
        except (StoreUnavailable, Conflict):
            return NotStarted()
        except BaseException as error:
            return self.outcome_of_error(run, error)
        return None

    def invoke(self, run: Run, call: Prepared) -> Outcome:
        """Step 9 for code that runs on the calling thread."""
        try:
            value = self._surrounded(run, call) if self._tools.middleware else self._call(run, call)
            if call.invocation.is_coroutine:
                # A coroutine outside of its lane: a callback, or a function that became async since it was stored.
                value = asyncio.run(value)
        except BaseException as error:
            return self.outcome_of_error(run, error)
        return self.outcome_of_value(run, value)

    async def invoke_async(self, run: Run, call: Prepared) -> Outcome:
        """Step 9 for coroutines, on the event loop."""
        try:
            if not self._tools.middleware and call.invocation.is_coroutine and run.job.body.breaker is None:
                value = await call.function(*call.args, **call.kwargs)
            else:
                value = await self._surrounded_async(run, call)
        except BaseException as error:
            return self.outcome_of_error(run, error)
        return self.outcome_of_value(run, value)

    def outcome_of_value(self, run: Run, value: Any) -> Outcome:
        """A returned value, encoded; a value that cannot be stored fails the attempt."""
        if run.stop is Stop.TIMED_OUT:
            return TimedOut(run.job.claim.timeout or run.elapsed(self._tools.clock.monotonic()))
        if run.committed is not None or value is None:
            return Returned()
        try:
            encoded = encode_result(value, self._tools.result_limit)
        except BaseException as error:
            return self.outcome_of_error(run, error)
        return Returned(encoded.text, encoded.truncated)

    def outcome_of_error(self, run: Run, error: BaseException) -> Outcome:
        """What an exception that left the target means."""
        if run.stop is Stop.TIMED_OUT and run.committed is None:
            return TimedOut(run.job.claim.timeout or run.elapsed(self._tools.clock.monotonic()))
        if run.stop is not None:
            return Interrupted(run.stop.value)
        if isinstance(error, RetryLater):
            return Postponed(error.delay, error.count, error.reason)
        if isinstance(error, JobInterrupted):
            return Interrupted(str(error) or "interrupted")
        if is_of_store(error):
            return self._store_failed(run, error)
        return Raised(error)

    def _store_failed(self, run: Run, error: BaseException) -> Outcome:
        """The store failed in the job's transaction, and all of it was undone: the job runs again, and nothing counts."""
        failures = self._store_failures.pop(run.job_id, 0) + 1
        if len(self._store_failures) >= REMEMBERED_FAILURES:
            self._store_failures.pop(next(iter(self._store_failures)), None)
        self._store_failures[run.job_id] = failures
        # from 0.5 to 1.5 of it: jobs that were in conflict should not meet again
        spread = 0.5 + run.job_id.int % 1000 / 1000
        delay = min(FIRST_STORE_PAUSE * 2 ** min(failures - 1, 16), LONGEST_STORE_PAUSE) * spread
        logger.warning(
            "job %s: the store failed in its ctx.transaction(), so this run does not count and the job runs again in %.1f s: %s",
            run.job_id,
            delay,
            error if isinstance(error, RatchetError) else type(error).__name__,
        )
        return Postponed(timedelta(seconds=delay), False, "the store failed in ctx.transaction()")

    def scope(self, run: Run) -> AbstractContextManager[object]:
        """What surrounds a run in a lane that makes the call by itself, outside of the middleware."""
        return nullcontext()

    def remote_scopes(self, run: Run) -> Sequence[RemoteScope]:
        """What surrounds its code in another process."""
        return ()

    def ended(self, run: Run) -> None:
        """No code of the user runs for it any more, conditions included."""
        if self._tools.started_runs is not None:
            self._tools.started_runs.end(run)

    def decide(self, end: RunEnd) -> None:
        """
        Step 10: what follows from the outcome, and what the store is asked to commit.

        Raises `StoreUnavailable` or `Conflict` where the conditions on the job's branches cannot be read;
        *end* is then undecided, and may be decided again.
        """
        run, now = end.run, self._tools.clock.now()
        state = None
        if run.touched_state is not None:
            try:
                state = run.encoded_state()
            except BaseException as error:
                if isinstance(end.outcome, Returned):
                    end.outcome = BadCheckpoint(error)
        decision = self._tools.decider.decide(end.outcome, run.job, now=now)
        if isinstance(decision, _COMPLETIONS):
            end.completion = self._completion(run, end.outcome, decision, state, now)
        elif isinstance(decision, Confirm):
            end.completion, end.answer = decision.completion, decision.answer
        end.decision = decision

    def _completion(
        self, run: Run, outcome: Outcome, decision: Decision, state: str | None, now: datetime
    ) -> Completion:
        """*decision* with everything that must commit with it."""
        claim, body, started_at = run.job.claim, run.job.body, run.started_at
        if isinstance(outcome, Unstorable):
            return Completion(claim=claim, decision=decision, started_at=started_at, finished_at=now)
        callback = None
        verdicts: tuple[Verdict, ...] = ()
        if isinstance(decision, (Succeed, Fail)):
            if body.on_success is not None or body.on_failure is not None:
                callback = callback_for(
                    run.job, decision, self._tools.ids(), now, self._tools.callback_retries
                )
            if body.has_conditions and not isinstance(outcome, BadCheckpoint):
                verdicts = self._tools.conditions.verdicts(run, decision)
        return Completion(
            claim=claim,
            decision=decision,
            started_at=started_at,
            finished_at=now if started_at is not None else None,
            verdicts=verdicts,
            callback=callback,
            state=state,
            still_running=run.still_running,
        )

    def _call(self, run: Run, call: Prepared) -> Any:
        breaker = run.job.body.breaker
        if breaker is None:
            return call.function(*call.args, **call.kwargs)
        return self.guarded(run, call, lambda: call.function(*call.args, **call.kwargs))

    def guarded(self, run: Run, call: Prepared, perform: Callable[[], Any]) -> Any:
        """What *perform* returns or raises, counted as an outcome of the service that the job depends on."""
        breaker = run.job.body.breaker
        if breaker is None:
            return perform()

        def in_time() -> Any:
            try:
                return perform()
            except BaseException as error:
                _require_time(run, error)
                raise

        return self._tools.resilience.execute(breaker, in_time, guard=_guard(breaker, call))

    def _surrounded(self, run: Run, call: Prepared) -> Any:
        with ExitStack() as stack:
            for middleware in self._tools.middleware:
                stack.enter_context(middleware(run.context))
            return self._call(run, call)

    async def _surrounded_async(self, run: Run, call: Prepared) -> Any:
        with ExitStack() as stack:
            for middleware in self._tools.middleware:
                stack.enter_context(middleware(run.context))
            breaker = run.job.body.breaker
            if not call.invocation.is_coroutine:
                # It was a coroutine when it was stored: it must not block the others.
                return await asyncio.to_thread(call.function, *call.args, **call.kwargs)
            if breaker is None:
                return await call.function(*call.args, **call.kwargs)
            return await self._tools.resilience.execute_async(
                breaker, lambda: _in_time_async(run, call), guard=_guard(breaker, call)
            )

    def _arguments(self, run: Run, invocation: Invocation) -> tuple[tuple[Any, ...], dict[str, Any]]:
        body = run.job.body
        if run.job.claim.type is JobType.CALLBACK:
            return self._callback_arguments(run, invocation)
        args, kwargs = decode(
            body.payload,
            invocation.parameters,
            allow_type=self._tools.allow_type,
            limit=self._tools.read_limit,
        )
        if '"$"' not in body.payload:
            return args, kwargs
        return self._with_results(run, args, kwargs)

    def _callback_arguments(self, run: Run, invocation: Invocation) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A callback is called with its context, after a failure with the error, and then with what it was given."""
        body = run.job.body
        leading: tuple[Any, ...] = (run.context,)
        refuse_sealed(body.payload, "arguments")
        (facts, *_), _ = decode(body.payload) if '"message"' in body.payload else ((None,), {})
        if facts is not None:
            leading = (run.context, JobError(job_id=run.parent_id or run.job_id, **facts))
        if plain_target(body.target) == body.target:
            return leading, {}
        given = kept_arguments(body.params, "on_success" if facts is None else "on_failure")
        args, kwargs = decode(
            given, invocation.parameters, allow_type=self._tools.allow_type, limit=self._tools.read_limit
        )
        if '"$"' in given and run.parent_id is not None:
            args, kwargs = self._filled(args, kwargs, [run.parent_id])
        return (*leading, *args[len(leading) :]), kwargs

    def _with_results(
        self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """RESULT and RESULTS become what the parents returned; `ResultTruncated` if one was too large to keep."""
        if not placeholders_in((args, kwargs)):
            return args, kwargs
        return self._filled(args, kwargs, self._tools.store.parents_of(run.job_id))

    def _filled(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], parents: Sequence[UUID]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        found = placeholders_in((args, kwargs))
        rows = self._tools.store.results(parents)
        taken = parents if RESULTS in found else parents[:1]
        for parent in taken:
            if parent in rows and rows[parent].result_truncated:
                raise truncation(parent, rows[parent].result, self._tools.result_limit)
        values = [
            decode_result(
                rows[parent].result, allow_type=self._tools.allow_type, limit=self._tools.read_limit
            )
            if parent in rows
            else None
            for parent in taken
        ]
        first = values[0] if values else None
        filled: tuple[tuple[Any, ...], dict[str, Any]] = substitute(
            (args, kwargs), result=first, results=values
        )
        return filled


def _guard(service: str, call: Prepared) -> Guard | None:
    """What the target says about its service today; None where it names another one than when it was stored."""
    protection = protection_of(call.invocation.function)
    return protection.guard if protection is not None and protection.service == service else None


def _require_time(run: Run, error: BaseException) -> None:
    """A service that hangs until the run is stopped has failed: raise what says so."""
    if run.stop is Stop.TIMED_OUT and not isinstance(error, Exception):
        raise JobTimeout("the run exceeded its timeout") from error


async def _in_time_async(run: Run, call: Prepared) -> Any:
    try:
        return await cast(Awaitable[Any], call.function(*call.args, **call.kwargs))
    except BaseException as error:
        _require_time(run, error)
        raise
