"""
Wakeups over any medium that carries a message from one process to all others.

What is hard about a `ClusterCoordinator` is the same for every medium, and is done here: a submission never
waits for the network, a burst of submissions is one message, lost connections are replaced, a forked
child has its own, and the message of a process that submits and ends at once still goes out. What a
`Medium` adds is small.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ratchet.model.status import Priority
from ratchet.spi.medium import CannotListen, Medium, Poster, Receiver, Sender

log = logging.getLogger("ratchet.wakeups")

SEND_GAP = 0.005  # seconds between two messages of one process
LISTENER_GAP = 0.002  # seconds between two calls of the listeners
IDLE_LIMIT = (
    30.0  # seconds without a message after which the sending thread ends and its connection is closed
)
DROP_AFTER = (
    60.0  # seconds without a connection after which a message is dropped: pollers have looked by then
)
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
STOP_TIMEOUT = 5.0  # seconds that `stop` waits for a thread that hangs in the network

#: Threads inherited by a fork, with their connections. To free these would end the parent's sessions.
_abandoned: list[Any] = []


class Listeners:
    """The functions to call. One that raises is logged, and the others are called all the same."""

    def __init__(self) -> None:
        self._all: tuple[Callable[[], None], ...] = ()

    def add(self, listener: Callable[[], None]) -> None:
        """Add *listener*, once, however often it is added."""
        if listener not in self._all:
            self._all = (*self._all, listener)

    def call(self) -> None:
        """Call all of them."""
        for listener in self._all:
            try:
                listener()
            except Exception:
                log.exception("a wakeup listener raised")


class Outage:
    """Logs once that something is gone, and once that it is back."""

    def __init__(self, gone: str, back: str) -> None:
        self._gone = gone
        self._back = back
        self.since: float | None = None

    def begin(self, error: BaseException) -> None:
        """It is gone, because of *error*."""
        if self.since is None:
            self.since = time.monotonic()
            reason = str(error).strip() or type(error).__name__
            log.warning(self._gone, reason.splitlines()[0])

    def end(self) -> None:
        """It works."""
        if self.since is not None:
            self.since = None
            log.info(self._back)


class BroadcastCoordinator:
    """
    Wakes the other processes that use the same medium, and is woken by them.

    Sending needs no `start`: a process that only submits has a sending thread while it submits, and
    none half a minute later. Listeners are called when a message arrives and whenever `connected`
    changes, because messages may have been missed. A process need not receive its own messages: it wakes
    its own poller directly.
    """

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self._listeners = Listeners()
        self._forget()
        _coordinators.add(self)

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._sending: SendingThread | None = None
        self._listening: ListeningThread | None = None
        self._outage = Outage(
            "other processes cannot be woken for new work (%s); they find it when they poll",
            "other processes are woken for new work again",
        )

    def _check_fork(self) -> None:
        if self._process != os.getpid():
            _abandoned.append((self._sending, self._listening))
            self._forget()

    @property
    def connected(self) -> bool:
        """True while messages of other processes arrive."""
        listening = self._listening
        return listening is not None and listening.connected and self._process == os.getpid()

    def notify_new_work(self, priority: Priority) -> None:
        """Wake the other processes, whatever the priority. Takes microseconds and never raises."""
        self._check_fork()
        sending = self._sending
        if sending is not None and sending.pending:
            return  # a message that has not been sent yet is about this job too
        with self._lock:
            if self._sending is None:
                self._sending = SendingThread(self._medium, self._retire, self._outage)
            if not self._sending.ask():
                self._sending = None

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None:
        """Call *listener* for every message; registering it again changes nothing."""
        self._listeners.add(listener)

    def start(self) -> None:
        """Begin to listen; a second call does nothing."""
        self._check_fork()
        with self._lock:
            if self._listening is None:
                self._listening = ListeningThread(self._medium, self._listeners)
                self._listening.start()

    def stop(self) -> None:
        """Send what is waiting, deliver nothing more, end threads and connections."""
        self._check_fork()
        with self._lock:
            sending, self._sending = self._sending, None
            listening, self._listening = self._listening, None
        if listening is not None:
            listening.stop()
        if sending is not None:
            sending.stop()

    def _retire(self, sending: SendingThread) -> bool:
        """True if *sending* may end: there is nothing to send."""
        with self._lock:
            if sending.pending or sending.posted:
                return False
            if self._sending is sending:
                self._sending = None
            return True

    def _flush(self) -> None:
        sending = self._sending
        if sending is not None and self._process == os.getpid():
            sending.stop(1.0)


class SendingThread:
    """
    The thread that sends: the first message at once, then at most one every few milliseconds.

    It lives while there is something to send, and a little longer. While it rests, the thread that submits
    posts the message itself, where the sender can do that, and this thread only reads the answer.
    """

    def __init__(self, medium: Medium, retire: Callable[[SendingThread], bool], outage: Outage) -> None:
        self._medium = medium
        self._retire = retire
        self._outage = outage
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._sender: Sender | None = None
        self._pause = FIRST_PAUSE
        self._thread = threading.Thread(target=self._run, name="ratchet-wakeups-send", daemon=True)
        self._sender_lock = threading.Lock()
        self._posting: Poster | None = None  # the sender, if it can do that
        self._poster: Poster | None = None  # the same, while the thread rests
        self.pending = False
        self.posted = False  # and the answer has not been read yet

    def ask(self) -> bool:
        """Have a message sent soon; False if there can be no thread for it (the interpreter is ending)."""
        if self._thread.ident is None:
            try:
                self._thread.start()
            except RuntimeError as error:
                log.debug("no wakeup is sent: %s", error)
                return False
        if not self._post():
            self.pending = True
        self._asked.set()
        return True

    def _post(self) -> bool:
        if not self._sender_lock.acquire(blocking=False):
            return False
        try:
            poster, self._poster = self._poster, None
            if poster is None:
                return False
            poster.post()
            self.posted = True
        except Exception:
            return False  # the sending thread will find out what is wrong with the connection
        finally:
            self._sender_lock.release()
        return True

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Send what is waiting, unless the medium is out of reach, and end."""
        self._stopping.set()
        self._asked.set()
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._asked.clear()
                if self.pending or self.posted:
                    self._send()
        finally:
            with self._sender_lock:
                self._drop_sender()

    def _is_over(self) -> bool:
        if self._stopping.is_set():
            return not (self.pending or self.posted) or self._outage.since is not None
        return not self._asked.wait(IDLE_LIMIT) and self._retire(self)

    def _send(self) -> None:
        fresh = self._sender is None
        try:
            with self._sender_lock:
                self._poster = None
                self._send_or_collect()
        except Exception as error:
            with self._sender_lock:
                self._drop_sender()
            self._try_again(error, at_once=not fresh)
        else:
            self._pause = FIRST_PAUSE
            self._outage.end()
            self._stopping.wait(SEND_GAP)
            if not self._stopping.is_set():
                self._poster = self._posting

    def _send_or_collect(self) -> None:
        """Read the answer to what was posted, or send what is pending."""
        if self.posted:
            self.posted = False
            if self.pending:
                self._asked.set()  # the pending one is sent next
            if self._posting is not None:
                self._posting.collect()
            return
        # Cleared before the message is sent: work that is submitted from now on may need another one.
        self.pending = False
        if self._sender is None:
            self._sender = sender = self._medium.sender()
            self._posting = sender if isinstance(sender, Poster) else None
        self._sender.send()

    def _try_again(self, error: Exception, *, at_once: bool) -> None:
        # A connection that died while it was idle fails only when it is used; a new one probably works.
        if not at_once:
            self._outage.begin(error)
            self._stopping.wait(self._pause * random.uniform(0.7, 1.0))
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        if self._outage.since is None or time.monotonic() - self._outage.since < DROP_AFTER:
            self.pending = True
            self._asked.set()

    def _drop_sender(self) -> None:
        self._poster = self._posting = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None


class ListeningThread:
    """The thread that listens, and connects again until it is stopped."""

    def __init__(self, medium: Medium, listeners: Listeners) -> None:
        self._medium = medium
        self._listeners = listeners
        self._lock = threading.Lock()
        self._receiver: Receiver | None = None
        self._stopping = threading.Event()
        self._outage = Outage(
            "wakeups from other processes do not arrive (%s); pollers look more often until they do",
            "wakeups from other processes arrive again",
        )
        self._thread = threading.Thread(target=self._run, name="ratchet-wakeups-listen", daemon=True)
        self.connected = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Call no listener any more, and end."""
        with self._lock:
            self._stopping.set()
            if self._receiver is not None:
                self._receiver.interrupt()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_TIMEOUT)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                self._listen()
            except CannotListen as reason:
                log.warning(
                    "wakeups from other processes are off: %s; pollers look more often instead", reason
                )
                return
            except Exception as error:
                if self.connected:
                    pause = FIRST_PAUSE
                self._attached(False)
                self._outage.begin(error)
                # At random: every node of the cluster has lost its connection now.
                self._stopping.wait(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, LONGEST_PAUSE)

    def _listen(self) -> None:
        receiver = self._medium.receiver()
        try:
            with self._lock:
                self._receiver = receiver
            self._outage.end()
            self._attached(True)
            while not self._stopping.is_set():
                if receiver.wait() and not self._stopping.is_set():
                    self._listeners.call()
                    self._stopping.wait(LISTENER_GAP)
        except CannotListen:
            self._attached(False)
            raise
        finally:
            with self._lock:
                self._receiver = None
            receiver.close()

    def _attached(self, connected: bool) -> None:
        if connected != self.connected:
            self.connected = connected
            if not self._stopping.is_set():
                self._listeners.call()


_coordinators: weakref.WeakSet[BroadcastCoordinator] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    # The message of a script that submits and ends at once must still be sent.
    for coordinator in list(_coordinators):
        coordinator._flush()
