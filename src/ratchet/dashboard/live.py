"""
Live pages: a hint that something has changed, over server-sent events; the browser then fetches the page again.

For each page that is open, its data is read every few seconds, once for all browsers that show it, and compared with
what it was. Nothing is read while no browser is connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

logger = logging.getLogger("ratchet.dashboard")

#: Browsers that are told at once; others poll.
MOST = 200
#: Seconds after which a silent connection is shown to be alive.
PING = 15.0
#: Seconds after which a browser has to connect again, and is checked again.
LIFE = 600.0

Digest = Callable[[], Awaitable[str]]


class _Topic:
    """One page that is open somewhere."""

    def __init__(self, digest: Digest, every: float) -> None:
        self.listeners: set[asyncio.Event] = set()
        self._digest = digest
        self._every = every
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _watch(self) -> None:
        last: str | None = None
        while True:
            try:
                now = await self._digest()
            except Exception as error:
                # The page says it too: that it cannot be read is a change.
                now = f"{type(error).__name__}"
            # The first reading is told too: the page may have changed after it was answered and before it was watched.
            if now != last:
                for listener in self.listeners:
                    listener.set()
            last = now
            await asyncio.sleep(self._every)


class Live:
    """Who watches which page."""

    def __init__(self) -> None:
        self._topics: dict[tuple[int, str], _Topic] = {}
        self._connected = 0

    @property
    def connected(self) -> int:
        """How many browsers are connected."""
        return self._connected

    @property
    def watched(self) -> int:
        """How many pages are read for them."""
        return len(self._topics)

    @property
    def is_full(self) -> bool:
        """True if no more browsers are told."""
        return self._connected >= MOST

    async def hints(self, key: str, digest: Digest, every: float) -> AsyncIterator[str]:
        """Server-sent events for as long as the browser is there: one whenever the page has changed."""
        place = (id(asyncio.get_running_loop()), key)
        topic = self._topics.get(place)
        if topic is None:
            topic = self._topics[place] = _Topic(digest, every)
        changed = asyncio.Event()
        topic.listeners.add(changed)
        self._connected += 1
        try:
            topic.start()
            ends = asyncio.get_running_loop().time() + LIFE
            yield "retry: 3000\n: connected\n\n"
            while asyncio.get_running_loop().time() < ends:
                try:
                    await asyncio.wait_for(changed.wait(), PING)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                changed.clear()
                yield "event: changed\ndata: 1\n\n"
        finally:
            self._connected -= 1
            topic.listeners.discard(changed)
            if not topic.listeners:
                topic.stop()
                self._topics.pop(place, None)
