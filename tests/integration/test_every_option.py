"""Every option does something: each one flipped, with what can be seen of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from ratchet import JobStatus, Options
from ratchet.model.status import Lane
from ratchet.spi.polling_strategy import PollObservation
from tests.integration import option_effects as see

PENDING, RUNNING, SUCCEEDED, FAILED = (
    JobStatus.PENDING,
    JobStatus.RUNNING,
    JobStatus.SUCCEEDED,
    JobStatus.FAILED,
)
S = timedelta(seconds=1)
WEEKS = timedelta(days=8)
FOREVER = {
    "retention": None,
    "dead_letter_retention": None,
    "execution_retention": None,
    "log_retention": None,
}


class Flip(NamedTuple):
    """An option's other value, and what is seen without it and with it."""

    value: Any
    effect: see.Effect
    before: object
    after: object
    beside: Mapping[str, Any] = MappingProxyType({})  # what else is set, both times


TABLE: dict[str, Flip] = {
    "concurrency": Flip(3, see.slots(Lane.THREAD), 20, 3),
    "async_concurrency": Flip(7, see.slots(Lane.ASYNC), 200, 7),
    "process_concurrency": Flip(see.CORES + 5, see.slots(Lane.PROCESS), see.CORES, see.CORES + 5),
    "queues": Flip(["default"], see.queues, SUCCEEDED, PENDING),
    "node_name": Flip("alpha", see.node_name, False, True),
    "node_tags": Flip(["eu-west", "blue"], see.node_tags, [], ["eu-west", "blue"]),
    "max_crashes": Flip(1, see.max_crashes, PENDING, FAILED),
    "priority_boost_interval": Flip(None, see.priority_boost_interval, ["old", "new"], ["new", "old"]),
    "callback_retries": Flip(1, see.callback_retries, (4, 3), (2, 1)),
    "condition_timeout": Flip(0.02, see.condition_timeout, True, False),
    "chain_depth_limit": Flip(2, see.chain_depth_limit, True, False),
    "remove_undeclared": Flip(True, see.remove_undeclared, ["nightly"], []),
    "resource_retry_delay": Flip(0.7, see.resource_retry_delay, 5 * S, 0.7 * S),
    "heartbeat": Flip(1, see.beat, (5 * S, 15 * S), (1 * S, 3 * S)),
    "silence": Flip(60, see.beat, (5 * S, 15 * S), (5 * S, 60 * S)),
    "idle_heartbeat": Flip(20, see.idle_heartbeat, 5 * S, 20 * S),
    "clock_skew_warning": Flip(5, see.clock_skew_warning, True, False),
    "max_prefetch": Flip(3, see.prefetch(10_000), 520, 23),
    "prefetch_window": Flip(1, see.prefetch(100), 30, 120),
    "hand_back_after": Flip(10, see.hand_back_after, PENDING, RUNNING),
    "poll_delay_burst": Flip(0.05, see.rests(5, woken=True), 0.5, 0.05),
    "poll_delay_min": Flip(0.2, see.rests(5, 5), 2.0, 0.2),
    "poll_delay_max": Flip(10, see.rests(0, 0, 0, 0, 0, 0), 30.0, 10.0),
    "poll_delay_idle": Flip(90, see.rests(5, 0, every=300), 60.0, 90.0),
    "poll_delay_unwoken": Flip(1.5, see.poll_delay_unwoken, 0.5, 1.5),
    "poll_idle_after": Flip(3600, see.rests(5, 0, every=300), 60.0, 5.0),
    "notify": Flip(False, see.notify, True, False),
    "completion_batch": Flip(4, see.completion_batch, [10], [4, 4, 2]),
    "event_queue_size": Flip(2, see.event_queue_size, ["a", "b", "c"], ["b", "c"]),
    "metric_labels": Flip(1, see.metric_labels, True, False),
    "drain_timeout": Flip(3, see.drain_timeout, 30.0, 3.0),
    "interrupt_grace": Flip(3, see.interrupt_grace, 0.5, 3.0),
    "slow_run_warning": Flip(60, see.slow_run_warning, 0, 1),
    "stuck_thread_limit": Flip(1, see.stuck_thread_limit, False, True),
    "retention": Flip(30 * 86_400, see.keeps(see.note, WEEKS, see.is_there), False, True),
    "dead_letter_retention": Flip(None, see.keeps(see.fail, 5 * WEEKS, see.is_there), False, True),
    "dead_letter_purge_cron": Flip("0 3 1 1 *", see.keeps(see.fail, 5 * WEEKS, see.is_there), False, True),
    "archive_retention": Flip(None, see.keeps(see.note, 100 * WEEKS, see.is_kept), False, True),
    "execution_retention": Flip(
        None, see.keeps(see.note, 5 * WEEKS, see.runs), 0, 1, FOREVER | {"execution_retention": 30 * 86_400}
    ),
    "log_retention": Flip(
        None, see.keeps(see.talk, 2 * WEEKS, see.lines), 0, 1, FOREVER | {"log_retention": 7 * 86_400}
    ),
    "history_retention": Flip(60 * 86_400, see.history_retention, False, True),
    "audit_retention": Flip(None, see.audit_retention, 0, 1),
    "signal_retention": Flip(86_400, see.signal_retention, JobStatus.WAITING, SUCCEEDED),
    "dlq_alert_window": Flip(60, see.dlq_alert_window, 1, 2),
    "maintenance_interval": Flip(7, see.interval_of("housekeeping"), 60.0, 7.0),
    "expiry_interval": Flip(3, see.interval_of("expiry"), 10.0, 3.0),
    "payload_limit": Flip(100, see.payload_limit, True, False),
    "result_limit": Flip(100, see.result_limit, False, True),
    "state_limit": Flip(100, see.state_limit, SUCCEEDED, FAILED),
    "error_limit": Flip(100, see.error_limit, True, False),
    "traceback_limit": Flip(512, see.traceback_limit, True, False),
    "log_lines_per_run": Flip(2, see.logged(5), (5, 4), (2, 4)),
    "log_line_limit": Flip(80, see.logged(1, "x" * 200), (1, 200), (1, 80)),
    "log_level": Flip("DEBUG", see.logged(1), (1, 4), (2, 4)),
    "auto_migrate": Flip(True, see.auto_migrate, False, True),
    "schema": Flip("jobs", see.schema, False, True),
    "pool_size": Flip(4, see.pool_size, 6, 2),
    "connect_timeout": Flip(0.3, see.connect_timeout, False, True),
    "statement_timeout": Flip(7, see.statement_timeout, "30s", "7s"),
    "failover_patience": Flip(6, see.statement_timeout, "30s", "3200ms"),
    "sqlite_synchronous": Flip("NORMAL", see.sqlite_synchronous, 2, 1),
    "sqlite_busy_timeout": Flip(0.2, see.sqlite_busy_timeout, False, True),
}


def test_every_option_has_a_row() -> None:
    """A new option comes with what can be seen of it."""
    assert set(TABLE) == {field.name for field in dataclasses.fields(Options)}


@pytest.mark.parametrize("name", TABLE)
def test_flipped_it_shows(name: str, request: pytest.FixtureRequest) -> None:
    """An option that nobody reads would leave things as they are by default."""
    row = TABLE[name]
    assert row.before != row.after
    assert row.effect(Options(**row.beside), request.getfixturevalue) == row.before
    assert row.effect(Options(**{**row.beside, name: row.value}), request.getfixturevalue) == row.after


@pytest.mark.parametrize(
    ("given", "rest"),
    [
        ({"poll_delay_min": 5}, 5.0),
        ({"poll_delay_min": 0.2}, 0.2),
        ({"poll_delay_unwoken": 0.1, "poll_delay_min": 5}, 0.1),
    ],
)
def test_a_delay_that_is_set_is_kept_without_wakeups(
    given: dict[str, Any], rest: float, request: pytest.FixtureRequest
) -> None:
    """Where no wakeups arrive, a node polls as its options say."""
    assert see.poll_delay_unwoken(Options(**given), request.getfixturevalue) == rest


class Hourly:
    """A strategy of the user's that wants a poll every hour."""

    def next_delay(self, observation: PollObservation) -> timedelta:
        return timedelta(hours=1)


def test_a_strategy_of_the_users_is_followed_without_wakeups() -> None:
    """No limit that the user did not set cuts its rests short; ``poll_delay_unwoken`` does."""
    for options, rest in [(Options(), 3600.0), (Options(poll_delay_unwoken=2), 2.0)]:
        with see.started(options, clock=see.ManualClock(), polling_strategy=Hourly()) as node:
            node._parts.clock.advance(S)  # type: ignore[attr-defined]  # a manual clock
            assert node._polling is not None
            assert node._polling._step() == rest


def test_whatever_is_kept_for_ever_stays(request: pytest.FixtureRequest) -> None:
    """The longest timedelta there is keeps everything, and the house is kept all the same."""
    forever = timedelta.max
    options = Options(
        retention=forever,
        dead_letter_retention=forever,
        log_retention=forever,
        execution_retention=forever,
        archive_retention=forever,
        audit_retention=forever,
    )
    assert see.keeps(see.note, timedelta(days=4000), see.is_there)(options, request.getfixturevalue)
