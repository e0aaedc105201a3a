"""Who sends a wakeup: the thread that submits, or one that comes and goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ratchet.model.status import Priority
from ratchet.spi import broadcast
from ratchet.spi.broadcast import BroadcastCoordinator
from tests.stores.wakeup_rigs import threads_end, waking_threads
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    with threads_end():
        yield


class Pipe:
    """A medium in memory that counts, and can be broken."""

    def __init__(self) -> None:
        self.sent = self.opened = self.closed = 0
        self.broken = False

    def sender(self) -> Pipe:
        if self.broken:
            raise OSError("broken")
        self.opened += 1
        return self

    def receiver(self) -> Any:
        raise OSError("nobody is there")

    def send(self) -> None:
        if self.broken:
            raise OSError("broken")
        self.sent += 1

    def close(self) -> None:
        self.closed += 1


class Letterbox(Pipe):
    """One that can be posted to; the answers are held back for as long as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.posters: list[int] = []
        self.answering = threading.Event()
        self.answering.set()

    def post(self) -> None:
        self.posters.append(threading.get_ident())
        self.send()

    def collect(self) -> None:
        self.answering.wait(30)
        if self.broken:
            raise OSError("broken")


class TestPosting:
    """On a system that has nothing to do the thread that submits sends the message by itself."""

    @pytest.fixture
    def box(self) -> Letterbox:
        return Letterbox()

    @pytest.fixture
    def coordinator(self, box: Letterbox) -> Iterator[BroadcastCoordinator]:
        """One that has a connection, and nothing to send."""
        coordinator = BroadcastCoordinator(box)
        coordinator.notify_new_work(Priority.NORMAL)
        self.wait_for_rest(coordinator)
        assert (box.sent, box.posters) == (1, [])
        yield coordinator
        box.answering.set()
        coordinator.stop()

    def wait_for_rest(self, coordinator: BroadcastCoordinator) -> None:
        """Until the sending thread has nothing to do."""
        until(lambda: coordinator._sending is not None and coordinator._sending._poster is not None)

    def test_no_thread_has_to_wake_up_for_it(self, box: Letterbox, coordinator: BroadcastCoordinator) -> None:
        """The message is on its way when the call returns, each time that nothing else is being sent."""
        for count in range(2, 5):
            coordinator.notify_new_work(Priority.NORMAL)
            assert (box.sent, box.posters) == (count, [threading.get_ident()] * (count - 1))
            self.wait_for_rest(coordinator)
        assert box.opened == 1

    def test_nobody_waits_for_its_answer(self, box: Letterbox, coordinator: BroadcastCoordinator) -> None:
        """What is submitted meanwhile is told by one more message, when the answer is there."""
        box.answering.clear()
        for _ in range(10):
            coordinator.notify_new_work(Priority.NORMAL)
        assert box.sent == 2
        box.answering.set()
        until(lambda: box.sent == 3)
        self.wait_for_rest(coordinator)
        assert (box.sent, len(box.posters)) == (3, 1)

    def test_a_message_behind_a_posted_one_is_not_forgotten(self, box: Letterbox) -> None:
        """Both came before the thread looked: it reads the answer to the one, and comes back for the other."""
        sending = broadcast.SendingThread(box, lambda sending: True, broadcast.Outage("%s", ""))
        sending._sender = box
        sending.posted = sending.pending = True
        sending._send()
        assert (sending.posted, sending.pending, sending._asked.is_set()) == (False, True, True)

    def test_a_connection_that_died_unused(self, box: Letterbox, coordinator: BroadcastCoordinator) -> None:
        """The message is sent again: by the thread where it could not be posted, on a new one where no answer came."""
        for opened, part in ((1, "post"), (2, "collect")):
            original, failures = getattr(box, part), [OSError("died unused")]

            def fails_once(original: Any = original, failures: list[OSError] = failures) -> None:
                if failures:
                    raise failures.pop()
                original()

            setattr(box, part, fails_once)
            before = box.sent
            coordinator.notify_new_work(Priority.NORMAL)
            until(lambda opened=opened, before=before: box.opened == opened and box.sent > before)
            self.wait_for_rest(coordinator)
            assert box.opened == opened

    def test_stop_and_the_end_of_the_thread(self, box: Letterbox, monkeypatch: pytest.MonkeyPatch) -> None:
        """However they coincide with a call, a message follows every call."""
        monkeypatch.setattr(broadcast, "IDLE_LIMIT", 0.0)
        monkeypatch.setattr(broadcast, "SEND_GAP", 0.0)
        coordinator = BroadcastCoordinator(box)
        for _ in range(100):
            before = box.sent
            coordinator.notify_new_work(Priority.NORMAL)
            until(lambda before=before: box.sent > before, 30)
        coordinator.stop()
        until(lambda: not waking_threads())
        assert box.opened == box.closed


class TestSendingThread:
    def test_it_ends_when_there_is_nothing_to_send_and_begins_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A process that submitted once keeps neither thread nor connection; its next submission is told all the same."""
        monkeypatch.setattr(broadcast, "IDLE_LIMIT", 0.05)
        pipe = Pipe()
        coordinator = BroadcastCoordinator(pipe)
        for turn in (1, 2):
            coordinator.notify_new_work(Priority.NORMAL)
            until(lambda: not waking_threads())
            assert (pipe.sent, pipe.opened, pipe.closed) == (turn, turn, turn)

    def test_no_submission_falls_between_two_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However the end of one thread and a call coincide, a message follows every call."""
        monkeypatch.setattr(broadcast, "IDLE_LIMIT", 0.0)
        monkeypatch.setattr(broadcast, "SEND_GAP", 0.0)
        pipe = Pipe()
        coordinator = BroadcastCoordinator(pipe)
        for _ in range(500):
            before = pipe.sent
            coordinator.notify_new_work(Priority.NORMAL)
            deadline = time.monotonic() + 5
            while pipe.sent == before:
                time.sleep(0)
                assert time.monotonic() < deadline
        coordinator.stop()

    def test_stop_sends_what_is_waiting(self) -> None:
        """A submission right before stop() is told."""
        for _ in range(50):
            pipe = Pipe()
            coordinator = BroadcastCoordinator(pipe)
            coordinator.notify_new_work(Priority.NORMAL)
            coordinator.stop()
            assert pipe.sent == 1

    def test_a_connection_that_died_unused_is_replaced_at_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What broke while nobody used it costs no pause and no warning."""
        pipe = Pipe()
        coordinator = BroadcastCoordinator(pipe)
        coordinator.notify_new_work(Priority.NORMAL)
        until(lambda: pipe.sent == 1)
        send, failures = pipe.send, [OSError("died unused")]

        def send_once_more() -> None:
            if failures:
                raise failures.pop()
            send()

        pipe.send = send_once_more  # type: ignore[method-assign]
        began = time.monotonic()
        coordinator.notify_new_work(Priority.NORMAL)
        until(lambda: pipe.sent == 2)
        assert time.monotonic() - began < broadcast.FIRST_PAUSE * 0.7
        assert caplog.records == []
        coordinator.stop()

    def test_it_gives_up_after_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the medium gone for long, the message is dropped and the thread ends; a later one is tried again."""
        monkeypatch.setattr(broadcast, "DROP_AFTER", 0.3)
        monkeypatch.setattr(broadcast, "IDLE_LIMIT", 0.05)
        pipe = Pipe()
        pipe.broken = True
        coordinator = BroadcastCoordinator(pipe)
        coordinator.notify_new_work(Priority.NORMAL)
        time.sleep(0.2)
        assert waking_threads() == ["ratchet-wakeups-send"]
        until(lambda: not waking_threads(), 5)
        pipe.broken = False
        coordinator.notify_new_work(Priority.NORMAL)
        until(lambda: pipe.sent == 1)
        coordinator.stop()
