"""The crew: a few threads that drive those services of a node that have little to do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ratchet.spi.executor_provider import ExecutorProvider
from ratchet.spi.fault_log import FaultLog

logger = logging.getLogger("ratchet.engine")

#: While a step is under way, what is due waits for so many seconds before a second thread takes it. Most steps are over
#: by then, and so one thread, with one connection, does them all.
RELIEF = 0.02


class Member:
    """One function that is called again and again; it returns how long to rest, in seconds."""

    def __init__(self, turn: Callable[[], float], *, prompt: bool = False) -> None:
        self.turn = turn
        self.prompt = prompt  # the steps of others never make it wait
        self.due = 0.0
        self.woken = False  # since its last step has begun
        self.latest = float("inf")  # it is called again at this time, whatever its step answers
        self.runs_on: threading.Thread | None = None
        self.is_leaving = False


class Crew:
    """
    Calls each member when it is due, and never two at once of the same.

    One thread watches the clock and calls who is due. While it is in a step another one watches, so that a step
    that takes long, or hangs, holds up nobody else. Threads come when they are needed and end with the last member.
    """

    def __init__(self, executor: ExecutorProvider, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._executor = executor
        self._monotonic = monotonic
        self._faults = FaultLog(logger, monotonic=monotonic)
        lock = threading.Lock()
        self._news = threading.Condition(lock)  # for the thread that watches the clock
        self._relief = threading.Condition(lock)  # for the thread that waits to watch
        self._ended = threading.Condition(lock)  # for those who wait for the end of a step
        self._members: list[Member] = []
        self._threads: set[threading.Thread] = set()
        self._watcher: threading.Thread | None = None
        self._watches_until = 0.0
        self._is_resting = False  # a thread waits to watch, and was not called yet
        self._is_coming = False  # one was called, or is being started
        self._number = 0

    def join(self, member: Member, after: float = 0.0) -> None:
        """Call *member* from now on, first *after* so many seconds; a second call does nothing."""
        with self._news:
            if member in self._members:
                return
            if not self._threads:
                self._add_thread()
            member.is_leaving = member.woken = False
            member.latest = float("inf")
            member.due = self._monotonic() + after
            self._members.append(member)
            self._news.notify()

    def wake(self, member: Member) -> None:
        """Call *member* now; once more, if it is being called."""
        if member.woken:
            return  # no step has begun since then
        with self._news:
            member.woken = True
            if member.runs_on is None:
                member.due = 0.0
                self._news.notify()

    def hasten(self, member: Member, within: float) -> None:
        """Call *member* within so many seconds from now, however long it wanted to rest."""
        at = self._monotonic() + within
        if member.latest <= at or (member.runs_on is None and member.due <= at):
            return
        with self._news:
            member.latest = at
            if member.runs_on is None and at < member.due:
                member.due = at
                self._news.notify()

    def leave(self, member: Member, timeout: float) -> bool:
        """
        Call *member* no more; True if its last step has ended. Safe to call from the step itself.

        When the last member has left, the threads end.
        """
        deadline = self._monotonic() + timeout
        with self._news:
            member.is_leaving = True
            if member.runs_on is threading.current_thread():
                return False
            while member.runs_on is not None:
                left = deadline - self._monotonic()
                if left <= 0:
                    return False
                self._ended.wait(left)
            self._remove(member)
            ending = [] if self._members else list(self._threads)
        for thread in ending:
            self._see_off(thread, deadline)
        return True

    def _see_off(self, thread: threading.Thread, deadline: float) -> None:
        """Wait for the end of a thread that has nothing to do; not if somebody has joined again meanwhile."""
        while (
            thread is not threading.current_thread()
            and thread.is_alive()
            and not self._members
            and (left := deadline - self._monotonic()) > 0
        ):
            thread.join(min(left, 0.05))

    def calls(self, member: Member) -> bool:
        """True while *member* is called when it is due, or is in its last step."""
        with self._news:
            return member in self._members and any(thread.is_alive() for thread in self._threads)

    def _remove(self, member: Member) -> None:
        if member in self._members:
            self._members.remove(member)
        if not self._members:
            self._is_resting = False
            self._news.notify_all()
            self._relief.notify_all()

    def _add_thread(self) -> None:
        self._number += 1
        thread = self._executor.thread(self._work, name=f"ratchet-services-{self._number}")
        self._threads.add(thread)
        try:
            thread.start()
        except BaseException:
            self._threads.discard(thread)
            raise

    # --- on the threads, under the lock

    def _work(self) -> None:
        me = threading.current_thread()
        with self._news:
            self._is_coming = False
            try:
                while self._is_needed():
                    self._watcher = me
                    member = self._next()
                    self._watcher = None
                    if member is not None:
                        self._step(member, me)
            finally:
                self._threads.discard(me)

    def _is_needed(self) -> bool:
        """True once this thread is to watch the clock; False if the others are enough: one watches, and one rests."""
        while self._members and self._watcher is not None:
            if self._is_resting:
                return False
            self._is_resting = True
            self._relief.wait()
            self._is_coming = False
        return bool(self._members)

    def _next(self) -> Member | None:
        """The member to call, once it is due; None if none is left."""
        while self._members:
            now = self._monotonic()
            until, first = float("inf"), None
            delay = RELIEF if any(one.runs_on is not None for one in self._members) else 0.0
            for one in self._members:
                if one.runs_on is None and not one.is_leaving:
                    at = one.due if one.prompt else one.due + delay
                    if at < until:
                        until, first = at, one
            if first is not None and until <= now:
                return first
            self._watches_until = until
            self._news.wait(min(until - now, threading.TIMEOUT_MAX))
        return None

    def _step(self, member: Member, me: threading.Thread) -> None:
        member.runs_on, member.woken, member.latest = me, False, float("inf")
        fault = self._send_relief()
        self._news.release()
        try:
            if fault is not None:  # the others wait for the end of this step
                self._faults.note("no further thread for services can be started", fault)
            rest = member.turn()
        finally:
            self._news.acquire()
            member.runs_on = None
        if member.is_leaving:
            self._remove(member)
            self._ended.notify_all()
            return
        member.due = 0.0 if member.woken else min(self._monotonic() + rest, member.latest)
        if member.due < self._watches_until:
            self._news.notify()

    def _send_relief(self) -> Exception | None:
        """Somebody else watches the clock from now on; why there is nobody, if so."""
        if self._is_coming:
            return None
        self._is_coming = True
        if self._is_resting:
            self._is_resting = False
            self._relief.notify()
            return None
        try:
            self._add_thread()
        except Exception as error:
            self._is_coming = False
            return error
        return None
