"""Everything that can be set, with its default and what it means."""

# ruff: noqa: RUF009 - the defaults are descriptors, made once and never changed

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from .durations import format_duration
from .errors import ConfigurationError
from .option_sources import OptionSources
from .settings import (
    Count,
    Interval,
    Names,
    OptionalCount,
    OptionalInterval,
    OptionalText,
    Setting,
    Switch,
    Text,
    choice,
    count,
    interval,
    names,
    optional_count,
    optional_interval,
    optional_text,
    size,
    switch,
)

#: What every variable that is an option begins with.
PREFIX = "RATCHET_"


class Liveness(NamedTuple):
    """How often a node beats, and how long it may be silent before it is declared dead."""

    heartbeat: timedelta
    silence: timedelta


class Timeouts(NamedTuple):
    """
    Seconds that a call waits for its database, at most: to connect, for a statement, for any answer.

    ``answer`` is None where it follows from that of a statement.
    """

    connect: float
    statement: float
    answer: float | None


class OptionRow(NamedTuple):
    """One line of the configuration reference."""

    name: str
    environment: str
    default: str
    accepts: str
    description: str
    section: str


def _s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Options:
    """
    Everything that can be set, checked on construction.

    Durations accept a timedelta or seconds and are held as timedelta. An instance remembers which
    fields were given (`given`): code wins over the environment only in these.
    """

    # --- Running jobs
    concurrency: Count = count(20, "Jobs that run at the same time in threads of this node.", at_least=1)
    async_concurrency: Count = count(
        200, "`async def` jobs that run at the same time on the event loop.", at_least=1
    )
    process_concurrency: OptionalCount = optional_count(
        "Jobs of the process lane that run at the same time; none: one per processor core.", at_least=1
    )
    queues: Names = names(
        "The queues this node takes jobs from; none: all of them.",
        accepts="a list of names, with commas in variables (emails,default)",
    )
    node_name: OptionalText = optional_text(
        "What this node is called in listings; none: the host name and process id.",
        accepts="text of up to 64 characters",
        longest=64,
    )
    node_tags: Names = names(
        "Words about this node that listings show, such as its zone or its release; none: nothing.",
        accepts="a list of words, with commas in variables (eu-west,blue)",
    )
    max_crashes: Count = count(
        3, "Crashes of its node during a run after which a job becomes a dead letter.", at_least=1
    )
    priority_boost_interval: OptionalInterval = optional_interval(
        timedelta(minutes=15),
        "Waiting time that raises a job's effective priority by one level; none or 0: waiting changes nothing.",
        zero_is_none=True,
    )
    callback_retries: Count = count(
        3,
        "Retries of a success or failure callback; the option of the node that runs the callback counts.",
        at_least=0,
    )
    condition_timeout: Interval = interval(
        _s(10), "Time a branch condition may take before its branch fails."
    )
    chain_depth_limit: Count = count(
        1000, "Steps that a chain or workflow may have below one another.", at_least=1, at_most=100_000
    )
    remove_undeclared: Switch = switch(
        False,
        "Remove schedules at start that were declared with @scheduler.recurring and are in the code no more; "
        "only where all nodes run the same code.",
    )
    resource_retry_delay: Interval = interval(
        _s(5),
        "Time after which a node looks again, at the latest, for a job that is due while its resource is at capacity. "
        "A run that frees a permit wakes the nodes at once, where wakeups arrive.",
    )

    # --- Liveness
    heartbeat: OptionalInterval = optional_interval(
        None, "Time between two signs of life of this node; none: 5s, or 2s under `ratchet worker`."
    )
    silence: OptionalInterval = optional_interval(
        None,
        "Silence after which this node is declared dead and its jobs run elsewhere; at least twice the "
        "heartbeat; none: 15s, or 5s under `ratchet worker`.",
    )
    idle_heartbeat: OptionalInterval = optional_interval(
        None,
        "Heartbeat to which a node without work slows down, with a silence that grows in proportion; the first job "
        "brings the usual one back. None: it never slows down; nor does it under `ratchet worker`.",
    )
    clock_skew_warning: Interval = interval(
        _s(1), "Difference between this machine's clock and the database's that is warned about."
    )

    # --- Claiming
    max_prefetch: Count = count(500, "Jobs that may be claimed beyond the free slots, at most.")
    prefetch_window: Interval = interval(
        _s(0.1), "How far ahead jobs are claimed, at the rate measured on this node.", zero=True
    )
    hand_back_after: Interval = interval(
        _s(1), "Time after which a claimed job that has not started is handed back."
    )
    poll_delay_burst: Interval = interval(
        _s(0.5), "Delay between polls after a wakeup, while work is found; `poll_delay_min` at most."
    )
    poll_delay_min: Interval = interval(
        _s(2),
        "Shortest delay between polls that find nothing; the longest as well, where no wakeups of other processes "
        "arrive (see `poll_delay_unwoken`).",
    )
    poll_delay_max: Interval = interval(
        _s(30), "Longest delay between polls that find nothing, where wakeups arrive."
    )
    poll_delay_idle: Interval = interval(
        _s(60),
        "Delay between polls of a node that has been idle for long, where wakeups arrive; `poll_delay_max` at least.",
    )
    poll_delay_unwoken: OptionalInterval = optional_interval(
        None,
        "Longest delay between polls while no wakeups of other processes arrive: on MySQL, behind a pooler, or after a lost "
        "connection. None: `poll_delay_min` if that is set, else 500ms; and what the strategy says, where "
        "the scheduler was given a `polling_strategy`.",
    )
    poll_idle_after: Interval = interval(
        timedelta(minutes=5), "Time without work after which a node is idle for long."
    )
    notify: Switch = switch(True, "Wake other nodes when a job is submitted, where the store can.")

    # --- Completing
    completion_batch: Count = count(
        500,
        "Outcomes that are written in one transaction, at most; while four times as many wait, nothing is claimed.",
        at_least=1,
    )
    event_queue_size: Count = count(
        10_000, "Events that may wait for slow listeners before the oldest are dropped.", at_least=1
    )

    # --- Stopping
    drain_timeout: Interval = interval(
        _s(30), "Time that running jobs get to finish when the node stops.", zero=True
    )
    interrupt_grace: Interval = interval(
        _s(0.5),
        "Time a canceled or timed-out job gets to end before its attempt ends without it and its slot is replaced.",
        zero=True,
    )
    slow_run_warning: OptionalInterval = optional_interval(
        None,
        "Time after which a run that goes on is logged as slow, once; at 80 % of its timeout, if that is earlier. None: never.",
    )
    stuck_thread_limit: Count = count(
        3, "Threads that ignored their interruption after which a worker process is replaced.", at_least=1
    )

    # --- Retention
    retention: OptionalInterval = optional_interval(
        timedelta(days=7), "Age at which succeeded and canceled jobs move to the archive; none: never."
    )
    dead_letter_retention: OptionalInterval = optional_interval(
        timedelta(days=30), "Age at which failed jobs move to the archive, with their alerts; none: never."
    )
    dead_letter_purge_cron: OptionalText = optional_text(
        "When failed jobs that are old enough move to the archive, in UTC, as in `0 3 * * *`; none: in every round. A node that is "
        "up at that time does it.",
        accepts="a cron expression",
        longest=120,
    )
    archive_retention: OptionalInterval = optional_interval(
        timedelta(days=365), "Age at which archived jobs are deleted; none: never."
    )
    execution_retention: OptionalInterval = optional_interval(
        timedelta(days=30),
        "Age at which the records of single runs, and of fire times, are deleted; none: with their job or schedule.",
    )
    log_retention: OptionalInterval = optional_interval(
        timedelta(days=7), "Age at which log lines of jobs are deleted; none: with their job."
    )
    history_retention: OptionalInterval = optional_interval(
        timedelta(days=7),
        "Age at which the rates of each minute are deleted (`jobs.history`); none or 0: none are kept.",
        zero_is_none=True,
    )
    audit_retention: OptionalInterval = optional_interval(
        timedelta(days=365), "Age at which entries of the audit log are deleted; none: never."
    )
    signal_retention: Interval = interval(
        timedelta(hours=1), "Time a signal that released nobody is kept for the first waiter."
    )
    dlq_alert_window: Interval = interval(
        timedelta(hours=1),
        "Time in which jobs of one target that fail with one type of error raise one alert.",
    )
    maintenance_interval: Interval = interval(
        timedelta(minutes=1), "Time between two rounds of archiving and purging."
    )
    expiry_interval: Interval = interval(_s(10), "Time between two searches for jobs that have expired.")

    # --- Limits
    payload_limit: Count = size(100 * 1024, "Size of a job's arguments; larger ones are refused.")
    result_limit: Count = size(64 * 1024, "Size of a result; of a larger one a preview is kept.", at_least=64)
    state_limit: Count = size(64 * 1024, "Size of a job's checkpoint (`ctx.state`); a larger one is refused.")
    error_limit: Count = count(2000, "Characters of an error message that are kept.", at_least=100)
    traceback_limit: Count = size(
        16 * 1024, "Size of a traceback; of a longer one both ends are kept.", at_least=512
    )
    metric_labels: Count = count(
        200,
        "Targets, and queues, that metrics name; those beyond are counted together as `other`.",
        at_least=1,
    )
    log_lines_per_run: Count = count(1000, "Log lines that are kept of one run; 0: none.")
    log_line_limit: Count = count(4000, "Characters of one log line that are kept.", at_least=80)
    log_level: Text = choice(
        "INFO",
        "Level from which a job's log lines are stored.",
        "DEBUG",
        "INFO",
        "WARNING",
        "ERROR",
        "CRITICAL",
    )

    # --- Database
    auto_migrate: Switch = switch(
        False, "Create or upgrade the schema when the scheduler first connects. SQLite always does."
    )
    schema: OptionalText = optional_text(
        "PostgreSQL schema, or MySQL database, that holds the tables; none: the connection's default.",
        accepts="the name of a schema",
        longest=63,
    )
    pool_size: Count = count(
        8, "Connections that one process opens, at most; two are the engine's own.", at_least=3, at_most=1000
    )
    connect_timeout: Interval = interval(_s(10), "Time to wait for a connection.")
    statement_timeout: Interval = interval(
        _s(30), "Time that one of Ratchet's own database calls may take before it is given up and repeated."
    )
    failover_patience: OptionalInterval = optional_interval(
        None,
        "Time that one database call waits, with a new connection, for a server that has gone silent, before it fails or "
        "finds the server that has taken over; statements get less time then. None: `statement_timeout` and 5s, and "
        "`connect_timeout`. Not for SQLite.",
    )
    sqlite_synchronous: Text = choice(
        "FULL",
        "How SQLite waits for the disk: FULL survives a power cut; NORMAL is faster and may lose the last "
        "moments to one, though not to a crash of the process.",
        "FULL",
        "NORMAL",
        "EXTRA",
    )
    sqlite_busy_timeout: Interval = interval(
        _s(10), "Time that SQLite waits for another program that holds its write lock."
    )

    def __new__(cls, *_: Any, **given: Any) -> Options:
        """Remember which fields were given (a dataclass does not), and refuse names that do not exist."""
        for name in given:
            _SOURCES.require_known(name, f"Options({name}=…)")
        made = super().__new__(cls)
        object.__setattr__(made, "_given", frozenset(given))
        object.__setattr__(made, "_from_file", frozenset())
        return made

    def __post_init__(self) -> None:
        held = self.__dict__
        for name, setting in _SETTINGS.items():
            held[name] = setting.checked(held[name], name)
        self._require_order("poll_delay_burst", "poll_delay_max")
        self._require_order("poll_delay_min", "poll_delay_max")
        if self.heartbeat is not None and self.silence is not None and self.silence < 2 * self.heartbeat:
            raise ConfigurationError(
                f"silence = {format_duration(self.silence)} is less than twice the heartbeat "
                f"({format_duration(self.heartbeat)}): a single late beat would cost the node its jobs"
            )

    def _require_order(self, smaller: str, larger: str) -> None:
        low, high = getattr(self, smaller), getattr(self, larger)
        if low > high:
            raise ConfigurationError(
                f"{smaller} = {format_duration(low)} is longer than {larger} = {format_duration(high)}; "
                f"it must not be"
            )

    # --- asking

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that were set explicitly."""
        found: frozenset[str] = self.__dict__["_given"]
        return found

    def liveness(self, *, supervised: bool = False) -> Liveness:
        """
        Heartbeat and silence of a node; *supervised* under ``ratchet worker``.

        A supervisor without user code beats on time, a thread beside user code may be kept
        waiting for seconds. If only one of the two is set, the other keeps its proportion.
        """
        usual, ratio = (_s(2), 2.5) if supervised else (_s(5), 3.0)
        heartbeat = self.heartbeat
        if heartbeat is None:
            heartbeat = usual if self.silence is None else min(usual, self.silence / ratio)
        return Liveness(heartbeat, self.silence if self.silence is not None else heartbeat * ratio)

    def unwoken_poll_delay(self, *, own_strategy: bool = False) -> timedelta | None:
        """
        Longest delay between polls while no wakeups arrive; None: no limit but the strategy's (*own_strategy*: the user's).

        A job that another process submits waits so long at most, so the default is shorter than `poll_delay_min`.
        """
        if self.poll_delay_unwoken is not None:
            return self.poll_delay_unwoken
        if own_strategy:
            return None
        return self.poll_delay_min if "poll_delay_min" in self.given else min(_s(0.5), self.poll_delay_min)

    def timeouts(self) -> Timeouts:
        """
        How long a database call waits for what.

        With ``failover_patience`` a third of it, at most, is for the new connection that follows on silence. The server
        gets to report its own timeout before it counts as silent.
        """
        connect, statement = self.connect_timeout.total_seconds(), self.statement_timeout.total_seconds()
        if self.failover_patience is None:
            return Timeouts(connect, statement, None)
        patience = self.failover_patience.total_seconds()
        connect = min(connect, patience / 3)
        answer = patience - connect
        return Timeouts(connect, min(statement, 0.8 * answer), answer)

    def replace(self, **changes: Any) -> Options:
        """A copy with *changes*, which count as given; everything else stays as given or not."""
        made = Options(**{**{name: getattr(self, name) for name in self.given}, **changes})
        object.__setattr__(made, "_from_file", self.__dict__["_from_file"] - changes.keys())
        return made

    # --- reading

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Options:
        """
        The options in the table ``[ratchet]``, or ``[tool.ratchet]``, of the TOML file at *path*.

        The environment still wins over them when they are given to a scheduler.
        """
        made = cls(**_SOURCES.in_toml(path))
        object.__setattr__(made, "_from_file", made.given)
        return made

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Options:
        """
        The options in variables such as ``RATCHET_CONCURRENCY=20`` or ``RATCHET_RETENTION=7d``.

        A variable that is no option but looks like a misspelled one is refused; other variables
        with the prefix are left alone (Kubernetes makes ``RATCHET_PORT`` for a service of that name).
        """
        return cls(**_SOURCES.in_environment(os.environ if environ is None else environ))

    @classmethod
    def load(
        cls,
        code: Options | None = None,
        environ: Mapping[str, str] | None = None,
        toml: str | os.PathLike[str] | None = None,
    ) -> Options:
        """
        The options of all three sources: code wins over the environment, which wins over the file.

        Of *code* only the fields count that were given; *environ* is this process's unless passed.
        """
        merged = _SOURCES.in_toml(toml) if toml is not None else {}
        filed: frozenset[str] = code.__dict__["_from_file"] if code is not None else frozenset()
        merged |= {name: getattr(code, name) for name in filed}
        merged |= _SOURCES.in_environment(os.environ if environ is None else environ)
        if code is not None:
            merged |= {name: getattr(code, name) for name in code.given - filed}
        return cls(**merged)

    # --- describing

    @classmethod
    def reference(cls) -> list[OptionRow]:
        """One row per option, in the order of the sections."""
        return [
            OptionRow(
                name=name,
                environment=PREFIX + name.upper(),
                default=setting.shown(),
                accepts=setting.accepts,
                description=setting.description,
                section=_SECTIONS[name],
            )
            for name, setting in _SETTINGS.items()
        ]

    @classmethod
    def reference_markdown(cls) -> str:
        """The reference as Markdown: one table per section."""
        return _as_markdown(cls.reference())


def _as_markdown(rows: Iterable[OptionRow]) -> str:
    """The reference as Markdown: one table per section."""
    lines: list[str] = []
    section = None
    for row in rows:
        if row.section != section:
            section = row.section
            lines += [
                "",
                f"## {section}",
                "",
                "| Option | Default | Meaning | Accepts |",
                "|---|---|---|---|",
            ]
        cells = (f"`{row.name}`<br>`{row.environment}`", f"`{row.default}`", row.description, row.accepts)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines[1:]) + "\n"


_SETTINGS: dict[str, Setting[Any, Any]] = {
    field.name: vars(Options)[field.name] for field in dataclasses.fields(Options)
}

# help() and editors would otherwise show the signature of __new__
_, *_parameters = inspect.signature(Options.__init__).parameters.values()
type.__setattr__(Options, "__signature__", inspect.Signature(_parameters))

_FIRST_OF_SECTION = {
    "concurrency": "Running jobs",
    "heartbeat": "Liveness",
    "max_prefetch": "Claiming",
    "completion_batch": "Completing",
    "drain_timeout": "Stopping",
    "retention": "Retention",
    "payload_limit": "Limits",
    "auto_migrate": "Database",
}


def _sections() -> Iterator[tuple[str, str]]:
    section = ""
    for name in _SETTINGS:
        section = _FIRST_OF_SECTION.get(name, section)
        yield name, section


_SECTIONS = dict(_sections())

_SOURCES = OptionSources(_SETTINGS, PREFIX)
