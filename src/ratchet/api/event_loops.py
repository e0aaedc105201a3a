"""
Sync verbs that are called on an event loop, which stands still meanwhile, and everything else on it with them.

Verbs that wait for a job are refused there: the job may need that very loop. All others are short, and many applications
submit from a coroutine without harm; they warn once for each line that calls them. Both messages name the form that is awaited.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path
from types import FrameType

from ratchet.model.errors import BlocksEventLoop, BlocksEventLoopWarning

#: Where the awaited form of a verb is, by the class that has the sync one.
_FACES = {
    "Scheduler": "scheduler.aio",
    "JobBuilder": "scheduler.aio.enqueue(…)",
    "JoinBuilder": "scheduler.aio.join(…)",
    "BatchBuilder": "scheduler.aio.enqueue_batch(…)",
    "StreamingBatchBuilder": "scheduler.aio.streaming_batch(…)",
    "JobHandle": "handle.aio",
    "BatchHandle": "batch.aio",
    "Schedule": "schedule.aio",
    "Jobs": "scheduler.aio.jobs",
    "DeadLetters": "scheduler.aio.dead_letters",
    "Nodes": "scheduler.aio.nodes",
    "Queues": "scheduler.aio.queues",
    "Limits": "scheduler.aio.limits",
    "Breakers": "scheduler.aio.breakers",
    "Schedules": "scheduler.aio.schedules",
    "Batches": "scheduler.aio.batches",
    "Storage": "scheduler.aio.storage",
    "Audit": "scheduler.aio.audit",
    "JobContext": "ctx.aio",
}
#: Verbs whose awaited form is a block.
_BLOCKS = {"run": "async with {}: …", "transaction": "async with {}.transaction(): …"}
_HERE = str(Path(__file__).parent.parent) + "/"
#: Lines that have been told.
_told: set[tuple[str, int]] = set()


def on_event_loop() -> bool:
    """True if an event loop runs on this thread, and the calling code holds it up."""
    events = sys.modules.get("asyncio.events")  # importing it takes longer than all of Ratchet
    return events is not None and events._get_running_loop() is not None


def warn_on_event_loop() -> None:
    """Warn that the verb that was called blocks the loop that runs on this thread."""
    call = _call_from_outside()
    if call is None:
        return
    outside, inside = call
    place = (outside.f_code.co_filename, outside.f_lineno)
    if place in _told:
        return
    _told.add(place)
    warnings.warn_explicit(
        f"{inside.f_code.co_qualname}() is called on an event loop, and blocks it while it is in the database; write "
        f"`{_instead(inside)}` there",
        BlocksEventLoopWarning,
        *place,
        module=outside.f_globals.get("__name__"),
    )


def refuse_on_event_loop() -> None:
    """`BlocksEventLoop`, if the verb that was called would wait on the loop that runs on this thread."""
    if not on_event_loop():
        return
    call = _call_from_outside()
    if call is not None:
        inside = call[1]
        raise BlocksEventLoop(
            f"{inside.f_code.co_qualname}() would wait on an event loop, and nothing else could run there meanwhile, perhaps not "
            f"even the job; write `{_instead(inside)}` there"
        )


def _call_from_outside() -> tuple[FrameType, FrameType] | None:
    """
    The frame that has called us, and the frame of the verb it has called.

    None where a blocked loop is what the caller wants, or nobody's business: in a notebook, where one always runs; in a greenlet
    (``AsyncSession.run_sync``), which lends sync code the loop; and where Ratchet itself was called by the loop.
    """
    inside: FrameType = sys._getframe(2)
    outside = inside.f_back
    # A block of ours is entered by contextlib.
    while outside is not None and outside.f_code.co_filename.startswith((_HERE, contextlib.__file__)):
        if outside.f_code.co_filename.startswith(_HERE):
            inside = outside
        outside = outside.f_back
    if outside is None or "get_ipython" in outside.f_globals or _in_greenlet():
        return None
    if str(outside.f_globals.get("__name__")).partition(".")[0] in ("asyncio", "contextvars", "uvloop"):
        return None
    return outside, inside


def _in_greenlet() -> bool:
    greenlet = sys.modules.get("greenlet")
    return greenlet is not None and greenlet.getcurrent().parent is not None


def _instead(inside: FrameType) -> str:
    owner = inside.f_locals.get("self")
    for cls in type(owner).__mro__:
        if cls.__name__ in _FACES:
            face, verb = _FACES[cls.__name__], inside.f_code.co_name
            return _BLOCKS.get(verb, f"await {{}}.{verb}(…)").format(face)
    return "await asyncio.to_thread(…)"
