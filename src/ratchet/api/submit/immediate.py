"""One job that is due at once, without a builder: stored by the caller's thread, or by an event loop."""

from __future__ import annotations

from datetime import datetime
from types import FunctionType
from typing import Any, TypeGuard

from ratchet.api.backend import Backend
from ratchet.api.context import enlisted_connection
from ratchet.api.observe.handles import JobHandle
from ratchet.api.submit.capture import LAMBDA
from ratchet.api.submit.sending import announce, send
from ratchet.api.submit.steps import Step, Submission, plain_spec
from ratchet.api.threads import in_thread, start_in_thread
from ratchet.model.job import Insertion, JobSpec
from ratchet.spi.store import Sent

#: Seconds that an event loop waits for an answer; after that a thread does, until its own deadline.
ANSWER_SOON = 1.0


def submit_now(
    backend: Backend, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> JobHandle[Any]:
    """Store the job and return its handle, as ``enqueue(target, …).submit()`` does."""
    now = backend.now()
    if _is_plain(target):
        spec = plain_spec(backend, target, args, kwargs, now)
    else:
        step = Step(target, args, kwargs).checked(backend)
        step.require_no_placeholders()
        spec = step.spec(backend.ids(), now, caller=backend.caller())
    submission = Submission([spec])
    send(backend, submission, now)
    return _handle(backend, spec, uncommitted=submission.uncommitted)


async def submit_soon(
    backend: Backend, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> JobHandle[Any]:
    """
    `submit_now` without blocking the event loop.

    If the store can be asked without waiting, the loop itself sends the job and waits for the answer;
    otherwise a thread does both. A job that was sent is stored even if the task that awaits it is canceled.
    Measured with one task on PostgreSQL: 427 µs of CPU time per job instead of 577 µs with a thread.
    """
    # With a tracer a thread does it: what surrounds a submission may wait.
    store = backend.sending if _is_plain(target) and backend.tracer is None else None
    if store is None or enlisted_connection(store) is not None:
        return await in_thread(submit_now, backend, target, args, kwargs)
    now = backend.now()
    spec = plain_spec(backend, target, args, kwargs, now)
    sent = store.send_insert(spec, now=now)
    if sent is None:
        await in_thread(send, backend, Submission([spec]), now)
        return _handle(backend, spec)
    try:
        answered = await _answer(sent)
    except BaseException:  # canceled, or the loop ends
        start_in_thread(_finish, backend, spec, sent, now)
        raise
    if not answered:
        await in_thread(_finish, backend, spec, sent, now)
    elif sent.finish():
        announce(backend, [spec], [Insertion(job_id=spec.job_id, created=True)], now)
    else:
        await in_thread(send, backend, Submission([spec]), now)
    return _handle(backend, spec)


def _finish(backend: Backend, spec: JobSpec, sent: Sent, now: datetime) -> None:
    """Wait for the answer, and do what follows from it."""
    if sent.finish():
        announce(backend, [spec], [Insertion(job_id=spec.job_id, created=True)], now)
    else:
        send(backend, Submission([spec]), now)


async def _answer(sent: Sent) -> bool:
    """True once the answer is there; False if it has not come for a while, or this loop cannot wait for it."""
    import asyncio  # heavy, and only needed where a loop is running already

    loop = asyncio.get_running_loop()
    answered: asyncio.Future[bool] = loop.create_future()

    def look() -> None:
        if not answered.done() and sent.is_answered():
            answered.set_result(True)

    def give_up() -> None:
        if not answered.done():
            answered.set_result(False)

    file = sent.fileno()
    try:
        loop.add_reader(file, look)
    except NotImplementedError:  # Windows' default loop
        return False
    timer = loop.call_later(ANSWER_SOON, give_up)
    try:
        return await answered
    finally:
        timer.cancel()
        loop.remove_reader(file)


def _is_plain(target: Any) -> TypeGuard[FunctionType]:
    """True for a function with a name; to take a lambda apart may run the user's code, which may block."""
    return type(target) is FunctionType and target.__name__ != LAMBDA


def _handle(backend: Backend, spec: JobSpec, *, uncommitted: bool = False) -> JobHandle[Any]:
    job_id = spec.job_id
    return JobHandle(
        backend, job_id, target=spec.target, steps=[job_id], last=job_id, uncommitted=uncommitted
    )
