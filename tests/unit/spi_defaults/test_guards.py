"""Guards answer for a part that does not, make each call once, and log each fault once a minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer
from ratchet.defaults.guards import (
    LONGEST_DELAY,
    LONGEST_RETRY_AFTER,
    RETRY_AFTER,
    WITHHELD,
    GuardedPolling,
    GuardedResilience,
    GuardedSanitizer,
    faults,
)
from ratchet.defaults.polling_strategy import AdaptivePollingStrategy
from ratchet.model.breaker import Guard
from ratchet.model.errors import JobInterrupted, RatchetError
from ratchet.spi import fault_log
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.polling_strategy import PollObservation
from ratchet.spi.shield import current_shield


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Faults of other tests are forgotten."""
    faults._seen.clear()


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise error

    return call


class TestFaultLog:
    def test_a_fault_is_logged_once_a_minute_with_a_count(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first line at once; the next one after a minute says how many there were in between."""
        now = 1000.0
        monkeypatch.setattr(fault_log.time, "monotonic", lambda: now)
        log = FaultLog(logging.getLogger("ratchet.parts"))
        for _ in range(5):
            log.note("it raised", ValueError("no"))
        log.note("something else")
        assert [record.getMessage() for record in caplog.records] == ["it raised", "something else"]
        assert caplog.records[0].exc_info is not None
        now += fault_log.QUIET
        log.note("it raised")
        log.note("it raised")
        assert caplog.records[-1].getMessage() == "it raised (4 more times since this was last logged)"
        assert len(caplog.records) == 3

    def test_a_handler_that_meets_the_same_fault(self) -> None:
        """Logging a fault may cause it again: that ends at once."""
        logger = logging.Logger("recursive")
        log = FaultLog(logger)
        handler = logging.Handler()
        seen: list[str] = []

        def emit(record: logging.LogRecord) -> None:
            seen.append(record.getMessage())
            log.note("it raised")

        handler.emit = emit  # type: ignore[method-assign]
        logger.addHandler(handler)
        log.note("it raised")
        assert seen == ["it raised"]


class TestSanitizer:
    @pytest.mark.parametrize(
        "answer", [raising(RuntimeError()), raising(SystemExit()), lambda _: None, lambda _: 7, lambda _: ""]
    )
    def test_the_class_name_is_what_is_left(self, answer: Callable[..., Any]) -> None:
        """Never what the error said: that may hold a secret."""
        part = SimpleNamespace(sanitize=answer, sanitize_text=answer)
        guarded = GuardedSanitizer(part, DefaultErrorSanitizer())
        assert guarded.sanitize(ValueError("password=hunter2")) == "ValueError"
        assert guarded.sanitize_text("password=hunter2") in (WITHHELD, "")

    def test_what_no_store_keeps_is_spelled_out(self) -> None:
        """A user's sanitizer need not know what databases refuse."""
        part = SimpleNamespace(sanitize=str, sanitize_text=str)
        guarded = GuardedSanitizer(cast(Any, part), DefaultErrorSanitizer())
        assert guarded.sanitize(ValueError("a\0b\ud800")) == "a\\x00b\\ud800"
        assert guarded.sanitize_text("a\0b") == "a\\x00b"

    def test_the_interruption_of_a_job_passes(self) -> None:
        """Raised into a job while it logs a line, it must stop the job; outside of a job it is a fault like any other."""
        part = SimpleNamespace(sanitize=str, sanitize_text=raising(JobInterrupted()))
        guarded = GuardedSanitizer(cast(Any, part), DefaultErrorSanitizer())
        assert guarded.sanitize_text("line") == WITHHELD
        token = current_shield.set(cast(Any, object()))
        try:
            with pytest.raises(JobInterrupted):
                guarded.sanitize_text("line")
        finally:
            current_shield.reset(token)


class Counted:
    """A call that counts how often it was made."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.made = 0
        self.error = error

    def __call__(self) -> str:
        self.made += 1
        if self.error is not None:
            raise self.error
        return "done"

    async def later(self) -> str:
        return self()


def outcome(execute: Callable[..., Any], call: Counted, *, is_async: bool) -> Any:
    """What a guarded strategy with this ``execute`` makes of the call."""
    if not is_async:
        return GuardedResilience(cast(Any, SimpleNamespace(execute=execute))).execute("s", call)

    async def execute_async(service: str, perform: Callable[[], Any], *, guard: Guard | None) -> Any:
        # The strategy's code is the same: its calls are made now and awaited here.
        made: list[Any] = []

        def now() -> Any:
            made.append(perform())
            return made[-1]

        try:
            return execute(service, now)
        finally:
            for one in made:
                await one

    guarded = GuardedResilience(cast(Any, SimpleNamespace(execute_async=execute_async)))
    return asyncio.run(guarded.execute_async("s", call.later))


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
class TestExecute:
    def test_a_call_that_succeeded_counts(self, is_async: bool) -> None:
        """Whatever the strategy returns or raises afterwards: the work was done, and must not be done again."""

        def answers(service: str, call: Callable[[], Any]) -> None:
            call()

        def raises(service: str, call: Callable[[], Any]) -> None:
            call()
            raise SystemExit

        for execute in (answers, raises):
            call = Counted()
            assert outcome(execute, call, is_async=is_async) == "done"
            assert call.made == 1

    def test_a_call_that_failed_counts(self, is_async: bool) -> None:
        """A strategy that swallows the error makes no success of it."""

        def swallows(service: str, call: Callable[[], Any]) -> str:
            try:
                call()
            except ValueError:
                pass
            return "fallback"

        call = Counted(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            outcome(swallows, call, is_async=is_async)
        assert call.made == 1

    def test_a_call_is_made_once(self, is_async: bool) -> None:
        """A strategy that tries again gets the outcome of the first call: retries are the engine's."""

        def insists(service: str, call: Callable[[], Any]) -> Any:
            call()
            return call()

        call = Counted()
        assert outcome(insists, call, is_async=is_async) == "done"
        assert call.made == 1

    @pytest.mark.parametrize("answer", [None, object()])
    def test_a_call_that_was_not_made_is_made(self, is_async: bool, answer: object) -> None:
        """A job must not succeed without having run."""
        call = Counted()
        assert outcome(lambda service, perform: answer, call, is_async=is_async) == "done"
        assert call.made == 1

    def test_a_strategy_may_refuse(self, is_async: bool) -> None:
        """What it raises before the call is the outcome, and the call is not made."""
        call = Counted()
        with pytest.raises(ConnectionRefusedError):
            outcome(raising(ConnectionRefusedError()), call, is_async=is_async)
        assert call.made == 0


class TestResilience:
    def test_an_answer_before_the_end_is_refused(self) -> None:
        """A strategy that makes the call in a thread of its own and does not wait for it."""

        def early(service: str, call: Callable[[], Any]) -> None:
            cast(Any, call).was_made = True

        guarded = GuardedResilience(cast(Any, SimpleNamespace(execute=early)))
        with pytest.raises(RatchetError, match="answered before the call"):
            guarded.execute("s", Counted())

    def test_the_guard_is_passed_on_where_it_is_taken(self) -> None:
        """A strategy that was written without it works too."""
        seen: list[Guard | None] = []

        def execute(service: str, call: Callable[[], Any], *, guard: Guard | None = None) -> Any:
            seen.append(guard)
            return call()

        rules = Guard()
        GuardedResilience(cast(Any, SimpleNamespace(execute=execute))).execute("s", Counted(), guard=rules)
        assert seen == [rules]

    @pytest.mark.parametrize(
        ("answer", "wait"),
        [
            (timedelta(seconds=3), timedelta(seconds=3)),
            (timedelta(seconds=-3), timedelta(0)),
            (timedelta.max, LONGEST_RETRY_AFTER),
            (None, RETRY_AFTER),
            (3, RETRY_AFTER),
        ],
    )
    def test_how_long_a_job_waits(self, answer: Any, wait: timedelta) -> None:
        """What makes no sense is replaced or cut: a due time beyond the calendar could not be stored."""
        part = SimpleNamespace(permits=lambda s: False, retry_after=lambda s: answer)
        assert GuardedResilience(cast(Any, part)).retry_after("s") == wait

    @pytest.mark.parametrize(
        ("answer", "permitted"), [(True, True), (False, False), (0, False), (None, True), ("no", True)]
    )
    def test_only_a_clear_no_holds_a_job_back(self, answer: Any, permitted: bool) -> None:
        """A strategy that cannot tell strands no job."""
        part = SimpleNamespace(permits=lambda s: answer)
        assert GuardedResilience(cast(Any, part)).permits("s") is permitted


class TestPolling:
    @pytest.mark.parametrize("answer", [None, 3, timedelta(seconds=-1)])
    def test_the_stock_strategy_decides_instead(self, answer: Any) -> None:
        """As if it had been asked all along: a wakeup makes it poll in bursts."""
        part = SimpleNamespace(next_delay=lambda observation: answer)
        guarded, stock = GuardedPolling(cast(Any, part), AdaptivePollingStrategy()), AdaptivePollingStrategy()
        observation = PollObservation(found=0, requested=5, at=1.0)
        for _ in range(3):
            assert guarded.next_delay(observation) == stock.next_delay(observation)
        guarded.woken()
        stock.woken()
        assert guarded.next_delay(observation) == stock.next_delay(observation)

    def test_a_delay_has_an_end(self) -> None:
        """A poller that rests for ever finds nothing any more."""
        part = SimpleNamespace(next_delay=lambda observation: timedelta.max)
        guarded = GuardedPolling(cast(Any, part), AdaptivePollingStrategy())
        assert guarded.next_delay(PollObservation(found=0, requested=5, at=1.0)) == LONGEST_DELAY
