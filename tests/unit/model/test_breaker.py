"""The circuit breaker's state machine, outcome by outcome."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ratchet.model.breaker import Breaker, BreakerSettings, BreakerState, Guard, ServiceCall, opened
from ratchet.model.errors import InvalidJob, JobInterrupted, RetryLater

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAIT = timedelta(seconds=30)
SETTINGS = BreakerSettings(0.5, 10, 4, WAIT, 2)
CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def seen(text: str, *, at: datetime = NOW) -> list[ServiceCall]:
    """Outcomes, one per character: ``x`` failed."""
    return [ServiceCall(at, mark == "x") for mark in text]


class TestClosed:
    @pytest.mark.parametrize(
        ("outcomes", "state"),
        [
            ("", CLOSED),
            ("xxx", CLOSED),  # fewer than the minimum
            ("xxxx", OPEN),
            ("..xx", OPEN),  # half of them
            ("...xx", CLOSED),
            ("...xxx", OPEN),
            (".........x", CLOSED),
            ("xxx.", CLOSED),  # enough calls, but a success opens nothing
            ("xxx.x", OPEN),
            (".......... xxxx".replace(" ", ""), CLOSED),  # 4 of the last 10
            (".......... xxxxx".replace(" ", ""), OPEN),
        ],
    )
    def test_opens_at_the_rate(self, outcomes: str, state: BreakerState) -> None:
        """The rate of failures among the last calls decides, once there are enough of them."""
        assert Breaker().after(seen(outcomes), SETTINGS, NOW).state is state

    def test_the_window_slides(self) -> None:
        """Never more outcomes than the window has, the latest last."""
        assert Breaker().after(seen("xx" + "." * 9), SETTINGS, NOW).window == "x" + "." * 9

    def test_the_order_decides(self) -> None:
        """Successes that come after the failure which opens it do not take that back."""
        assert Breaker().after(seen("xxxx......"), SETTINGS, NOW) == opened(SETTINGS, NOW)

    def test_calls_from_before_it_closed_say_nothing(self) -> None:
        """They began in the outage."""
        breaker = Breaker(since=NOW)
        assert breaker.after(seen("xxxx", at=NOW - timedelta(seconds=1)), SETTINGS, NOW) is breaker


class TestOpen:
    OPENED = opened(SETTINGS, NOW)
    LATER = NOW + WAIT

    def test_until_when(self) -> None:
        """It holds everything back until the wait is over."""
        assert self.OPENED.until == self.LATER
        assert self.OPENED.holds_back(self.LATER - timedelta(microseconds=1))
        assert not self.OPENED.holds_back(self.LATER)
        assert Breaker(state=OPEN).holds_back(NOW + timedelta(days=999))

    @pytest.mark.parametrize(
        ("outcomes", "state", "passed"),
        [(".", HALF_OPEN, 1), ("..", CLOSED, 0), ("x", OPEN, 0), (".x", OPEN, 0), ("x.", OPEN, 0)],
    )
    def test_probes_decide(self, outcomes: str, state: BreakerState, passed: int) -> None:
        """All of them close it, one failure opens it anew."""
        after = self.OPENED.after(seen(outcomes, at=self.LATER), SETTINGS, self.LATER)
        assert (after.state, after.passed) == (state, passed)
        if state is OPEN:
            assert after.until == self.LATER + WAIT
        if state is CLOSED:
            assert (after.window, after.since) == ("", self.LATER)

    def test_calls_from_before_its_time_are_no_probes(self) -> None:
        """Neither a success nor a failure of a call that began while it was open or closed counts."""
        assert (
            self.OPENED.after(seen(".x..", at=self.LATER - timedelta(seconds=1)), SETTINGS, NOW)
            is self.OPENED
        )

    def test_opened_by_hand_for_good(self) -> None:
        """Without a time there are no probes."""
        breaker = Breaker(state=OPEN)
        assert breaker.after(seen("..", at=NOW + timedelta(days=999)), SETTINGS, NOW) is breaker


class TestStored:
    @pytest.mark.parametrize(
        "breaker",
        [
            Breaker(),
            Breaker(window="..x", since=NOW),
            opened(SETTINGS, NOW),
            Breaker(state=HALF_OPEN, until=NOW, passed=1),
        ],
    )
    def test_comes_back_as_it_was(self, breaker: Breaker) -> None:
        """State and time are columns, the rest is the document."""
        assert Breaker.of(breaker.record("bank")) == breaker

    def test_never_used(self) -> None:
        """A service without a record has a closed breaker."""
        assert Breaker.of(None) == Breaker()


class TestSettings:
    @pytest.mark.parametrize(
        "values",
        [
            (0.0, 10, 5, WAIT, 1),
            (1.1, 10, 5, WAIT, 1),
            (0.5, 10, 11, WAIT, 1),
            (0.5, 10, 0, WAIT, 1),
            (0.5, 10, 5, timedelta(0), 1),
            (0.5, 10, 5, WAIT, 0),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, values: tuple[float, int, int, timedelta, int]) -> None:
        """Where they are written, not in an outage."""
        with pytest.raises(InvalidJob):
            BreakerSettings(*values)


class TestGuard:
    @pytest.mark.parametrize(
        ("guard", "error", "counts"),
        [
            (Guard(), ValueError(), True),
            (Guard(), JobInterrupted(), False),
            (Guard(), RetryLater(timedelta(seconds=1)), False),
            (Guard(), KeyboardInterrupt(), False),
            (Guard(ignore=(LookupError,)), KeyError(), False),
            (Guard(ignore=(LookupError,)), ValueError(), True),
            (Guard(record=(OSError,)), ConnectionError(), True),
            (Guard(record=(OSError,)), ValueError(), False),
            (Guard(record=(OSError,), ignore=(ConnectionError,)), ConnectionError(), False),
            (Guard(record=(Exception,)), RetryLater(timedelta(seconds=1)), False),
        ],
    )
    def test_which_errors_speak_of_the_service(
        self, guard: Guard, error: BaseException, counts: bool
    ) -> None:
        """What is recorded and not ignored; a stop or a postponement never."""
        assert guard.counts(error) is counts


class Wrapped(Exception):
    """An application's own error."""


def _wrapped(inner: BaseException, *, explicit: bool, hidden: bool = False) -> BaseException:
    try:
        try:
            raise inner
        except BaseException as error:
            if hidden:
                raise Wrapped from None
            if explicit:
                raise Wrapped from error
            raise Wrapped  # noqa: B904  # the error that is being handled is its context
    except Wrapped as outer:
        return outer


class TestCauses:
    RECORD = Guard(record=(ConnectionError,))
    IGNORE = Guard(ignore=(LookupError,))

    @pytest.mark.parametrize(
        ("guard", "error", "counts"),
        [
            (RECORD, _wrapped(ConnectionError(), explicit=True), True),
            (RECORD, _wrapped(ConnectionResetError(), explicit=False), True),
            (RECORD, _wrapped(ConnectionError(), explicit=False, hidden=True), False),
            (RECORD, _wrapped(ValueError(), explicit=True), False),
            (RECORD, _wrapped(_wrapped(ConnectionError(), explicit=True), explicit=True), True),
            (IGNORE, _wrapped(KeyError(), explicit=True), False),
            (IGNORE, _wrapped(KeyError(), explicit=False), True),  # the service was called because of it
            (IGNORE, _wrapped(_wrapped(KeyError(), explicit=True), explicit=True), False),
            (IGNORE, _wrapped(_wrapped(KeyError(), explicit=True), explicit=False), True),
            (IGNORE, _wrapped(ValueError(), explicit=True), True),
            (
                Guard(),
                _wrapped(JobInterrupted("timeout"), explicit=True),
                True,
            ),  # a run that hung until its timeout
            (Guard(), JobInterrupted("timeout"), False),
        ],
    )
    def test_errors_behind_an_error(self, guard: Guard, error: BaseException, counts: bool) -> None:
        """What an error was raised from decides as well; what was merely being handled can only be recorded."""
        assert guard.counts(error) is counts

    def test_a_circle_ends(self) -> None:
        """Errors that refer to each other are asked once."""
        one, two = ValueError(), KeyError()
        one.__cause__, two.__cause__ = two, one
        assert not self.RECORD.counts(one)
