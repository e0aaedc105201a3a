"""
Guards around replaceable parts: whatever a user's part does, no job is stranded and no thread of the node ends.

A guard calls the part directly. If the part raises (`SystemExit` too) or answers with something that its
contract does not allow, the guard has an answer of its own, and the fault is logged. A method that the part does not
have is left out, or the stock implementation's is used. `guarded_coordinator` is the guard of a `ClusterCoordinator`;
the retry policy is guarded where it is asked, in `engine/decide`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ratchet.model.breaker import Guard
from ratchet.model.errors import ConfigurationError, JobInterrupted, RatchetError
from ratchet.model.job import Job, JobFilter
from ratchet.model.permissions import Permission
from ratchet.spi.authorizer import Authorizer
from ratchet.spi.error_sanitizer import ErrorSanitizer
from ratchet.spi.executor_provider import ExecutorProvider
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.polling_strategy import PollingStrategy, PollObservation
from ratchet.spi.principal_provider import PrincipalProvider
from ratchet.spi.resilience import ResilienceStrategy
from ratchet.spi.shield import current_shield
from ratchet.spi.target_policy import TargetPolicy

if TYPE_CHECKING:  # 15 ms that nothing but a node with a provider of its own needs
    from concurrent.futures import Executor
    from multiprocessing.context import BaseContext

T = TypeVar("T")

faults = FaultLog(logging.getLogger("ratchet.parts"))

#: How long a job waits if the resilience strategy does not permit it and cannot say how long.
RETRY_AFTER = timedelta(seconds=5)
#: A job that is not permitted asks again after a day, whatever the strategy says.
LONGEST_RETRY_AFTER = timedelta(days=1)
#: A poller looks at least this often, whatever its strategy says.
LONGEST_DELAY = timedelta(hours=1)
WITHHELD = "(withheld: it could not be sanitized)"
CALLER_LIMIT = 255


def require_methods(part: object | None, argument: str, *names: str) -> None:
    """`ConfigurationError` unless *part*, the scheduler's *argument*, is None or has all of these methods."""
    for name in names:
        if part is not None and not callable(getattr(part, name, None)):
            raise ConfigurationError(
                f"the {argument} is a {type(part).__name__}, which has no method {name}(); "
                f"give it one, or leave {argument} out to use the stock implementation"
            )


class GuardedSanitizer:
    """
    Always answers with text that every store can keep.

    Where the sanitizer fails, the name of the error's class is stored and nothing else: what the error said may
    hold a secret.
    """

    def __init__(self, inner: ErrorSanitizer, stock: ErrorSanitizer) -> None:
        self._sanitize: Callable[[BaseException], object] = getattr(inner, "sanitize", stock.sanitize)
        self._sanitize_text: Callable[[str], object] = getattr(inner, "sanitize_text", stock.sanitize_text)

    def sanitize(self, error: BaseException) -> str:
        """What the sanitizer makes of *error*, or the name of its class."""
        try:
            text = self._sanitize(error)
            if isinstance(text, str) and text:
                return _storable(text)
            fault = None
        except BaseException as raised:
            pass_on_interruption(raised)
            fault = raised
        faults.note(
            "ErrorSanitizer.sanitize() raised or returned no text; the name of the error's class is stored instead",
            fault,
        )
        return _class_name(error)

    def sanitize_text(self, text: str) -> str:
        """What the sanitizer makes of *text*, or a note that it was withheld."""
        try:
            clean = self._sanitize_text(text)
            if isinstance(clean, str):
                return _storable(clean)
            fault = None
        except BaseException as raised:
            pass_on_interruption(raised)
            fault = raised
        faults.note(
            "ErrorSanitizer.sanitize_text() raised or returned no text; the traceback or log line is not stored",
            fault,
        )
        return WITHHELD


class GuardedResilience:
    """
    Makes each call at most once, and whatever the call returned or raised is the outcome.

    A breaker that cannot tell whether a service is available holds no job back.
    """

    def __init__(self, inner: ResilienceStrategy) -> None:
        self._permits: Callable[[str], object] = getattr(inner, "permits", _permit)
        self._retry_after: Callable[[str], object] = getattr(inner, "retry_after", _after_default)
        self._execute: Callable[..., object] | None = getattr(inner, "execute", None)
        self._execute_async: Callable[..., object] | None = getattr(inner, "execute_async", None)
        self._takes_guard = _takes_guard(self._execute)
        self._takes_guard_async = _takes_guard(self._execute_async)

    def permits(self, service: str) -> bool:
        """What the strategy says; True if it cannot tell."""
        try:
            answer = self._permits(service)
            if isinstance(answer, int):  # True and False are integers too
                return bool(answer)
            fault = None
        except BaseException as raised:
            fault = raised
        faults.note("ResilienceStrategy.permits() raised or returned no bool; the job is run", fault)
        return True

    def retry_after(self, service: str) -> timedelta:
        """What the strategy says, at most a day; a few seconds if it cannot tell."""
        try:
            answer = self._retry_after(service)
            if isinstance(answer, timedelta):
                return min(max(answer, timedelta(0)), LONGEST_RETRY_AFTER)
            fault = None
        except BaseException as raised:
            fault = raised
        faults.note(
            "ResilienceStrategy.retry_after() raised or returned no timedelta; the job waits a few seconds",
            fault,
        )
        return RETRY_AFTER

    def execute(self, service: str, call: Callable[[], T], *, guard: Guard | None = None) -> T:
        """
        What *call* returns or raises.

        If the strategy raises before it has made the call, that is the outcome: it may refuse the call so.
        """
        if self._execute is None:
            return call()
        once = _OneCall(call)
        try:
            self._execute(service, once, **({"guard": guard} if self._takes_guard else {}))
        except BaseException as raised:
            if not once.has_ended or raised is once.error:
                raise
            _note_after_call(raised)
        if not once.was_made:
            faults.note("ResilienceStrategy.execute() returned without making the call; it is made now")
            once()
        return once.outcome()

    async def execute_async(
        self, service: str, call: Callable[[], Awaitable[T]], *, guard: Guard | None = None
    ) -> T:
        """The same for a coroutine function's call."""
        if self._execute_async is None:
            return await call()
        once = _OneAsyncCall(call)
        try:
            answer = self._execute_async(
                service, once, **({"guard": guard} if self._takes_guard_async else {})
            )
            if inspect.isawaitable(answer):
                await answer
        except BaseException as raised:
            if not once.has_ended or raised is once.error:
                raise
            _note_after_call(raised)
        if not once.was_made:
            faults.note("ResilienceStrategy.execute_async() ended without making the call; it is made now")
            await once()
        return once.outcome()


class _CallOutcome(Generic[T]):
    """What became of a call that is made at most once."""

    def __init__(self) -> None:
        self.was_made = False
        self.has_ended = False
        self.error: BaseException | None = None
        self._value: T | None = None

    def outcome(self) -> T:
        """What the call returned or raised."""
        if self.error is not None:
            raise self.error
        if not self.has_ended:
            raise RatchetError(
                "the resilience strategy answered before the call that it had begun has ended; "
                "its execute() must return or raise after the call"
            )
        return cast(T, self._value)


class _OneCall(_CallOutcome[T]):
    """A call that is made by the first who asks; all others get its outcome."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__()
        self._call = call

    def __call__(self) -> T:
        if not self.was_made:
            self.was_made = True
            try:
                self._value = self._call()
            except BaseException as error:
                self.error = error
                raise
            finally:
                self.has_ended = True
        return self.outcome()


class _OneAsyncCall(_CallOutcome[T]):
    """The same for a coroutine function."""

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        super().__init__()
        self._call = call

    async def __call__(self) -> T:
        if not self.was_made:
            self.was_made = True
            try:
                self._value = await self._call()
            except BaseException as error:
                self.error = error
                raise
            finally:
                self.has_ended = True
        return self.outcome()


class GuardedPolling:
    """Rests as the strategy says; where it does not say, as the stock strategy would."""

    def __init__(self, inner: PollingStrategy, stock: PollingStrategy) -> None:
        self._stock = stock
        self._next_delay: Callable[[PollObservation], object] = getattr(inner, "next_delay", stock.next_delay)
        self._woken: Callable[[], object] = getattr(inner, "woken", stock.woken)
        self._has_failed = False

    def next_delay(self, observation: PollObservation) -> timedelta:
        """What the strategy says, at most an hour."""
        try:
            delay = self._next_delay(observation)
            if isinstance(delay, timedelta) and delay >= timedelta(0):
                return min(delay, LONGEST_DELAY)
            fault = None
        except BaseException as raised:
            fault = raised
        faults.note(
            "PollingStrategy.next_delay() raised or returned no delay; the stock strategy decides", fault
        )
        self._has_failed = True
        return self._stock.next_delay(observation)

    def woken(self) -> None:
        """Pass it on. The caller has just stored a job: nothing may make that look like a failure."""
        if self._has_failed:
            self._stock.woken()
        try:
            self._woken()
        except BaseException as raised:
            pass_on_interruption(raised)
            faults.note("PollingStrategy.woken() raised", raised)


class GuardedExecutor:
    """Makes the threads and processes of the provider; where it makes none, those of the stock one."""

    def __init__(self, inner: ExecutorProvider, stock: ExecutorProvider) -> None:
        self._stock = stock
        self._thread: Callable[..., object] = getattr(inner, "thread", stock.thread)
        self._job_pool: Callable[[int], object] = getattr(inner, "job_pool", stock.job_pool)
        self._process_context: Callable[[], object] = getattr(inner, "process_context", stock.process_context)

    def thread(self, run: Callable[[], None], *, name: str) -> Thread:
        """The provider's thread, if it is one that can be started."""
        try:
            thread = self._thread(run, name=name)
            if isinstance(thread, Thread) and thread.ident is None:
                return thread
            fault = None
        except BaseException as raised:
            fault = raised
            thread = None
        if isinstance(thread, Thread):
            raise ConfigurationError(
                f"ExecutorProvider.thread() has started the thread {name}; return it and let the node start it"
            )
        faults.note("ExecutorProvider.thread() raised or returned no thread; a stock thread is used", fault)
        return self._stock.thread(run, name=name)

    def job_pool(self, slots: int) -> Executor | None:
        """The provider's pool, if it is one of threads."""
        from concurrent.futures import Executor, ProcessPoolExecutor

        try:
            pool = self._job_pool(slots)
            if pool is None or (isinstance(pool, Executor) and not isinstance(pool, ProcessPoolExecutor)):
                return pool
            fault = None
        except BaseException as raised:
            fault = raised
        faults.note(
            "ExecutorProvider.job_pool() raised or returned no pool of threads; stock threads are used", fault
        )
        return None

    def process_context(self) -> BaseContext:
        """The provider's context."""
        from multiprocessing.context import BaseContext

        try:
            context = self._process_context()
            if isinstance(context, BaseContext):
                return context
            fault = None
        except BaseException as raised:
            fault = raised
        faults.note(
            "ExecutorProvider.process_context() raised or returned no context; processes are spawned", fault
        )
        return self._stock.process_context()


class GuardedTargetPolicy:
    """The policy, whose hint is only part of an error message: without it the message says less."""

    def __init__(self, inner: TargetPolicy) -> None:
        self.allows: Callable[[str], bool] = inner.allows
        self._hint: Callable[[str], object] = getattr(inner, "hint", _hint)

    def hint(self, target: str) -> str:
        """What the policy says, or something that is always true."""
        try:
            text = self._hint(target)
            if isinstance(text, str) and text:
                return text
        except BaseException as raised:
            faults.note("TargetPolicy.hint() raised", raised)
        return _hint(target)


class GuardedAuthorizer:
    """The authorizer, which permits only by saying True: one that raises, or says anything else, refuses."""

    def __init__(self, inner: Authorizer) -> None:
        self._permits: Callable[[str | None, Permission, Job | None], object] = inner.__call__
        self._scope: Callable[[str | None, Permission], object] | None = getattr(inner, "scope", None)

    def __call__(self, principal: str | None, permission: Permission, job: Job | None) -> bool:
        """True if the authorizer says True."""
        try:
            return self._permits(principal, permission, job) is True
        except BaseException as raised:
            pass_on_interruption(raised)
            faults.note(f"Authorizer raised when it was asked about {permission}; that is refused", raised)
            return False

    def scope(self, principal: str | None, permission: Permission) -> JobFilter | None:
        """The jobs for which it says yes; None: it has to be asked about each."""
        if self._scope is None:
            return None
        try:
            found = self._scope(principal, permission)
            if found is None or isinstance(found, JobFilter):
                return found
            fault = None
        except BaseException as raised:
            pass_on_interruption(raised)
            fault = raised
        faults.note("Authorizer.scope() raised or returned no JobFilter; it is asked about each job", fault)
        return None


class CheckedPrincipal:
    """The provider, whose answer is checked before anything is stored."""

    def __init__(self, inner: PrincipalProvider) -> None:
        self._current: Callable[[], object] = inner.current

    def current(self) -> str | None:
        """The caller; `ConfigurationError` for what no store could keep."""
        caller = self._current()
        if caller is None or (isinstance(caller, str) and len(caller) <= CALLER_LIMIT):
            return caller
        said = f"{len(caller)} characters" if isinstance(caller, str) else f"a {type(caller).__name__}"
        raise ConfigurationError(
            f"PrincipalProvider.current() returned {said}; return a str of at most {CALLER_LIMIT} characters, or None"
        )


def pass_on_interruption(error: BaseException) -> None:
    """Raise the interruption of the job that runs here, if *error* is one; outside of jobs it is a fault like any other."""
    if isinstance(error, JobInterrupted) and current_shield.get() is not None:
        raise error


def _note_after_call(error: BaseException) -> None:
    """The strategy failed after the call, whose outcome counts. An interruption that comes so late has its effect later."""
    from asyncio import CancelledError  # not for a program that only submits

    if not isinstance(error, JobInterrupted | CancelledError):
        faults.note("ResilienceStrategy raised after the call; what the call did counts", error)


def _takes_guard(execute: Callable[..., object] | None) -> bool:
    """Whether a strategy's ``execute`` takes *guard*; one that is written for any breaker does not."""
    try:
        parameters = inspect.signature(cast(Any, execute)).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(one.name == "guard" or one.kind is one.VAR_KEYWORD for one in parameters)


def _permit(service: str) -> bool:
    return True


def _after_default(service: str) -> timedelta:
    return RETRY_AFTER


def _hint(target: str) -> str:
    return f"change the target_policy of the scheduler so that it allows {target}"


def _class_name(error: BaseException) -> str:
    try:
        return _storable(str(type(error).__name__))
    except BaseException:  # a metaclass may answer with anything
        return "Exception"


def _storable(text: str) -> str:
    """*text* as a plain str, with U+0000 and lone surrogates spelled out: no database keeps them."""
    text = str.__str__(text)
    if text.isascii():
        return text.replace("\0", "\\x00") if "\0" in text else text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
