"""
Batches: many jobs of one target that are counted together.

The items are children of a BATCH_PARENT job, which has the batch's id and waits until all of them
have ended; what follows the batch hangs on that job, under conditions about the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

from ratchet.api.batches.drafts import BatchDraft
from ratchet.api.batches.handles import BatchHandle
from ratchet.api.checks import count_of
from ratchet.api.submit.submission import CHUNK
from ratchet.api.threads import AwaitFace, awaited, in_thread, joining

T = TypeVar("T")


class EachDraft(BatchDraft):
    """A batch of items that are at hand."""

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
