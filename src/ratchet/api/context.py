"""What a job sees of itself while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Protocol, cast
from uuid import UUID

from ratchet.api.event_loops import on_event_loop, warn_on_event_loop
from ratchet.model.composition import Signal
from ratchet.model.errors import InvalidJob, JobInterrupted, RatchetError
from ratchet.spi.shield import Shield, current_shield

if TYPE_CHECKING:
    from concurrent.futures import Executor

logger = logging.getLogger("ratchet.job")


class JobTransaction(Protocol):
    """
    The block inside ``ctx.transaction()``: your writes and this job's success commit together.

    ``connection`` is the driver's own (a session on MongoDB). ``result`` is what the job's result
    will be. One block per job; after it nothing changes the outcome.
    """

    connection: Any
    result: Any

    def execute(self, statement: str, parameters: Any = ()) -> Any:
        """Run a statement on the transaction's connection and return the driver's cursor."""
        ...


class RunBackend(Shield, Protocol):
    """What the engine lends to a running job."""

    @property
    def job_id(self) -> UUID: ...
    @property
    def attempt(self) -> int: ...
    @property
    def node_id(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def batch_id(self) -> UUID | None: ...
    @property
    def caller(self) -> str | None: ...
    @property
    def parent_id(self) -> UUID | None: ...

    @property
    def context(self) -> JobContext:
        """What the job sees of itself: always the same one."""
        ...

    def params(self) -> dict[str, Any]:
        """The job's params, decoded."""
        ...

    def signal(self) -> Signal | None:
        """The signal that released the job."""
        ...

    def load_state(self) -> dict[str, Any]:
        """The checkpoint of an earlier attempt; empty if there is none."""
        ...

    def save_state(self, state: dict[str, Any]) -> None:
        """Store the checkpoint now, under the claim's fence."""
        ...

    def save_progress(self, fraction: float, message: str | None) -> None:
        """Store progress, under the claim's fence."""
        ...

    def interruption(self) -> str | None:
        """Why the run should stop; None if it should go on."""
        ...

    def transaction(self, within: object | None) -> AbstractContextManager[JobTransaction]:
        """The transaction in which this job succeeds."""
        ...


_enlisted: ContextVar[tuple[object, object] | None] = ContextVar("ratchet_transaction", default=None)


def current_run() -> RunBackend | None:
    """The run of the job that is running in this thread or task; only runs put a shield there."""
    return cast("RunBackend | None", current_shield.get())


def enlisted_connection(store: object) -> object | None:
    """
    The connection of the ``ctx.transaction()`` block that surrounds the caller: submissions join it.

    None also where the block belongs to another *store*: a transaction does not span two databases.
    """
    found = _enlisted.get()
    return found[0] if found is not None and found[1] is store else None


class enlisted:
    """Makes submissions and progress inside the block join *connection*'s transaction."""

    __slots__ = ("_enlistment", "_token")

    def __init__(self, connection: object, store: object) -> None:
        self._enlistment = (connection, store)

    def __enter__(self) -> None:
        self._token = _enlisted.set(self._enlistment)

    def __exit__(self, *_: object) -> None:
        _enlisted.reset(self._token)


class JobContext:
    """The running job: its id, attempt, params, checkpoint, progress and transaction."""

    __slots__ = ("_backend", "_params", "_state")

    def __init__(self, backend: RunBackend) -> None:
        self._backend = backend
        self._params: dict[str, Any] | None = None
        self._state: dict[str, Any] | None = None

    @property
    def aio(self) -> AsyncJobContext:
        """The same verbs, awaitable."""
        return AsyncJobContext(self)

    @staticmethod
    def current() -> JobContext:
        """The context of the job that is running in this thread or task; an error outside of one."""
        run = current_run()
        if run is None:
            raise RatchetError(
                "no job is running here: JobContext.current() works inside a job. In a test, run the "
                "function through manual_scheduler().drain()"
            )
        return run.context

    @staticmethod
    def current_or_none() -> JobContext | None:
        """The context of the running job, or None outside of one."""
        run = current_run()
        return None if run is None else run.context

    @property
    def backend(self) -> RunBackend:
        """The engine's side of this run."""
        return self._backend

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self._backend.job_id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._backend.attempt

    @property
    def node_id(self) -> str:
        """The node that runs the job."""
        return self._backend.node_id

    @property
    def target(self) -> str:
        """The stored name of the function that runs."""
        return self._backend.target

    @property
    def parent_id(self) -> UUID | None:
        """The job that this one follows: of a callback, the job it is about."""
        return self._backend.parent_id

    @property
    def batch_id(self) -> UUID | None:
        """The batch that this job belongs to."""
        return self._backend.batch_id

    @property
    def caller(self) -> str | None:
        """On whose behalf the job was submitted, as the `PrincipalProvider` said then; None where nobody was named."""
        return self._backend.caller

    @property
    def params(self) -> dict[str, Any]:
        """The values given with ``with_param``."""
        if self._params is None:
            self._params = self._backend.params()
        return self._params

    def param(self, name: str, default: Any = None) -> Any:
        """One param, or *default*."""
        return self.params.get(name, default)

    @property
    def signal(self) -> Signal | None:
        """The signal that released this job, if it waited for one."""
        return self._backend.signal()

    @property
    def logger(self) -> logging.Logger:
        """A logger whose lines are kept with the job (as are those of every other logger while it runs)."""
        return logger

    @property
    def state(self) -> dict[str, Any]:
        """A small checkpoint that survives attempts; stored with `save` and when the attempt ends."""
        if self._state is None:
            self._state = self._backend.load_state()
        return self._state

    def save(self) -> None:
        """Store `state` now."""
        if on_event_loop():
            warn_on_event_loop()
        self.check_canceled()
        self._backend.save_state(self.state)

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Say how far the job is, from 0 to 1; visible to its handle and in the CLI."""
        if not 0.0 <= fraction <= 1.0:
            raise InvalidJob(f"progress is a fraction from 0 to 1, not {fraction!r}")
        if on_event_loop():
            warn_on_event_loop()
        self.check_canceled()
        self._backend.save_progress(float(fraction), message)

    def check_canceled(self) -> None:
        """Raise `JobInterrupted` if the job was canceled, timed out or lost to another node."""
        reason = self._backend.interruption()
        if reason is not None:
            raise JobInterrupted(reason)

    def transaction(self, within: object | None = None) -> AbstractContextManager[JobTransaction]:
        """
        A transaction in which your writes and this job's success commit together or not at all.

        *within* takes what ``submit(within=…)`` takes: an open connection or session of yours on the
        same database; then the commit is yours and happens when the block ends.
        """
        if on_event_loop():
            warn_on_event_loop()
        return self._backend.transaction(within)

    @property
    def touched_state(self) -> dict[str, Any] | None:
        """The checkpoint, if the job has read it; else None."""
        return self._state


class AsyncJobContext:
    """The awaitable face of `JobContext`, for ``async def`` jobs."""

    __slots__ = ("_context",)

    def __init__(self, context: JobContext) -> None:
        self._context = context

    async def save(self) -> None:
        """Store `JobContext.state` now, without blocking the event loop."""
        await _in_thread(self._context.save)

    async def progress(self, fraction: float, message: str | None = None) -> None:
        """Say how far the job is, without blocking the event loop."""
        await _in_thread(lambda: self._context.progress(fraction, message))

    def transaction(self, within: object | None = None) -> AbstractAsyncContextManager[JobTransaction]:
        """`JobContext.transaction` for ``async with``."""
        return self._transaction(within)

    @asynccontextmanager
    async def _transaction(self, within: object | None) -> Any:
        block = self._context.backend.transaction(within)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1, thread_name_prefix="ratchet-transaction") as executor:
            thread = TransactionThread(executor)
            transaction = cast(JobTransaction, await thread.run(block.__enter__))
            lent = _lent.set(thread)
            try:
                with enlisted(transaction.connection, getattr(transaction, "store", None)):
                    yield _ThreadBound(transaction, thread)
            except BaseException as error:
                failed = error
                if not await thread.run(lambda: block.__exit__(type(failed), failed, failed.__traceback__)):
                    raise
            else:
                await thread.run(lambda: block.__exit__(None, None, None))
            finally:
                _lent.reset(lent)


class TransactionThread:
    """
    The one thread on which everything inside ``ctx.aio.transaction()`` runs.

    Drivers and the writer gate depend on the calling thread, and a context variable must be reset in
    the context in which it was set: so there is one thread and one context.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._context = copy_context()

    async def run(self, work: Callable[[], Any]) -> Any:
        """What *work* returns, called on the thread."""
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(
            self._executor, lambda: self._context.run(work)
        )


_lent: ContextVar[TransactionThread | None] = ContextVar("ratchet_transaction_thread", default=None)


def transaction_thread() -> TransactionThread | None:
    """The thread of the ``ctx.aio.transaction()`` block around the caller: awaited verbs inside run on it."""
    return _lent.get()


class _ThreadBound:
    """A transaction whose statements run on the one thread that opened it."""

    def __init__(self, transaction: JobTransaction, thread: TransactionThread) -> None:
        self._transaction = transaction
        self._thread = thread

    @property
    def connection(self) -> Any:
        return self._transaction.connection

    @property
    def result(self) -> Any:
        return self._transaction.result

    @result.setter
    def result(self, value: Any) -> None:
        self._transaction.result = value

    async def execute(self, statement: str, parameters: Any = ()) -> Any:
        """Run a statement on the transaction's connection, without blocking the event loop."""
        return await self._thread.run(lambda: self._transaction.execute(statement, parameters))


async def _in_thread(work: Callable[[], Any]) -> Any:
    thread = transaction_thread()
    if thread is not None:
        return await thread.run(work)
    import asyncio

    context = copy_context()
    return await asyncio.get_running_loop().run_in_executor(None, lambda: context.run(work))


class entered:
    """Makes *run* the current one for the block; written out because it is on the hot path."""

    __slots__ = ("_run", "_token")

    def __init__(self, run: RunBackend) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._token = current_shield.set(self._run)

    def __exit__(self, *_: object) -> None:
        current_shield.reset(self._token)
