"""A life: what is known while it is drawn, and the values that its operations are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from ratchet.model.clock import ManualClock
from ratchet.model.composition import BatchSpec, Edge
from ratchet.model.identifiers import IdFactory
from ratchet.model.job import JobFilter, JobSpec, SignalWait, StreamKey
from ratchet.model.status import Busy, JobStatus, JobType, Lane, Priority
from tests.differential.players import RESOURCES, Player, Run

T = TypeVar("T")

START = datetime(2031, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)

TARGETS = ("shop.jobs:charge", "shop.jobs:mail", "shop.jobs:Mail")
# Words that databases like to mix up: by case, by accent, by trailing space, as a pattern.
QUEUES = ("default", "default", "default", "mail", "Mail")
KEYS = ("order", "Order", "ordér", "order ", "order%")
TAGS = ("red", "Red", "blue", "r_d")
MESSAGES = ("card declined", "Card declined", "100% gone", "_ is not %", "tout cassé")
SERVICES = ("bank",)
SIGNALS = ("go", "Go", "stop")
SCHEDULES = ("nightly", "hourly")
SECONDS = (1, 1, 1, 5, 30, 61, 600, 1800)


@dataclass(frozen=True)
class Operation:
    """One call, as text for people and as something that every store can be asked."""

    text: str
    call: Callable[[Player], object]
    at: datetime


class Life:
    """The dice of one seed, and what has been made so far. Only what the in-memory store answers is known."""

    def __init__(self, seed: int, known: Player) -> None:
        self.dice = Random(seed)
        self.known = known
        self.now = START
        self.names: dict[UUID, str] = {}
        self.sent: list[tuple[Sequence[JobSpec], Sequence[Edge], BatchSpec | None]] = []
        self.jobs: list[UUID] = []
        self.batches: list[UUID] = []
        self.nodes = ["node-1", "node-2"]
        self.incarnations = 2
        clock = ManualClock(START - timedelta(hours=1))
        self._ids = IdFactory.seeded(clock, seed)

    # --- dice -----------------------------------------------------------------------------------

    def one(self, values: Sequence[T]) -> T:
        """Any of them."""
        return values[self.dice.randrange(len(values))]

    def some(self, values: Sequence[T], most: int) -> list[T]:
        """A few of them, in the order given."""
        count = min(self.dice.randint(0, most), len(values))
        return [values[place] for place in sorted(self.dice.sample(range(len(values)), count))]

    def happens(self, chance: float) -> bool:
        """True as often as *chance* says."""
        return self.dice.random() < chance

    def seldom(self, chance: float, make: Callable[[], T]) -> T | None:
        """What *make* makes as often as *chance* says, else None."""
        return make() if self.happens(chance) else None

    def new(self, kind: str) -> UUID:
        """A new id, with a short name. Ids grow, but they are not always used in that order."""
        made = self._ids()
        self.names[made] = f"{kind}-{len(self.names) + 1}"
        return made

    def name(self, made: UUID) -> str:
        """The short name of an id."""
        return self.names.get(made, str(made))

    # --- times ----------------------------------------------------------------------------------

    def pass_time(self) -> datetime:
        """Every operation has a moment of its own; sometimes much time lies between two."""
        self.now += timedelta(milliseconds=1)
        if self.happens(0.35):
            self.now += timedelta(seconds=self.one(SECONDS))
        return self.now

    def about_now(self) -> datetime:
        """A time on a grid, so that jobs are due at the same moment: now, past or future."""
        seconds = self.one((0, 0, 0, 0, -1, -60, -1800, -4000, 1, 20, 90))
        return self.now.replace(microsecond=0) + timedelta(seconds=seconds)

    def past(self) -> datetime:
        """A time that some of what has happened lies before."""
        return self.now - timedelta(seconds=self.one((0, 10, 60, 1000)))

    # --- jobs -----------------------------------------------------------------------------------

    def spec(self, **changes: Any) -> JobSpec:
        """A job with a few things about it that are not ordinary."""
        stream = changes.pop("stream", None) or self.stream()
        values: dict[str, Any] = {
            "job_id": self.new("job"),
            "target": self.one(TARGETS),
            "payload": '{"args":[42],"kwargs":{}}',
            "scheduled_at": self.about_now(),
            "stream": stream,
            "priority": self.one(list(Priority)),
            "tags": tuple(self.some(TAGS, 2)),
            "max_retries": self.dice.randint(0, 2),
            "expires_at": self.seldom(0.15, self.about_now),
            "timeout": self.seldom(0.1, lambda: timedelta(seconds=2.5)),
            "params": self.seldom(0.1, lambda: '{"tenant":"Zoë"}'),
            "business_key": self.seldom(0.2, lambda: self.one(KEYS)),
            "idempotency_key": self.seldom(0.1, lambda: self.one(KEYS)),
            "busy": self.one((Busy.RAISE, Busy.RETURN, Busy.REPLACE)),
            "on_failure": self.seldom(0.15, lambda: TARGETS[1]),
            "caller": self.seldom(0.1, lambda: "ann"),
            **changes,
        }
        made = JobSpec(**values)
        self.jobs.append(made.job_id)
        return made

    def stream(self) -> StreamKey:
        """Mostly the ordinary one."""
        return StreamKey(
            queue=self.one(QUEUES),
            lane=self.one((Lane.THREAD, Lane.THREAD, Lane.THREAD, Lane.ASYNC)),
            resource=self.seldom(0.2, lambda: self.one(RESOURCES)),
            limit_key=self.seldom(0.1, lambda: self.one(RESOURCES)),
            breaker=self.seldom(0.1, lambda: self.one(SERVICES)),
        )

    def waiting_spec(self, needs: int, **changes: Any) -> JobSpec:
        """A job that waits for edges, and sometimes for a signal as well."""
        return self.spec(status=JobStatus.WAITING, needs=needs, type=JobType.CHAIN_STEP, **changes)

    def signal_wait(self) -> SignalWait:
        """What a job may wait for."""
        return SignalWait(key=self.one(SIGNALS), deadline=self.seldom(0.4, self.about_now))

    def job(self) -> UUID:
        """A job that was submitted, mostly a late one; it need not exist, nor have been stored."""
        if not self.jobs or self.happens(0.02):
            return self.new("nobody")
        recent = self.jobs[-12:] if self.happens(0.7) else self.jobs
        return self.one(recent)

    def where(self) -> JobFilter:
        """Which jobs: one or two criteria."""
        criteria: dict[str, Callable[[], Any]] = {
            "statuses": lambda: self.some(list(JobStatus), 3) or [JobStatus.FAILED],
            "tags": lambda: self.some(TAGS, 2) or ["red"],
            "targets": lambda: [self.one(TARGETS)],
            "queue": lambda: self.one(QUEUES),
            "types": lambda: [self.one(list(JobType))],
            "priorities": lambda: self.some(list(Priority), 3) or [Priority.HIGH],
            "business_key": lambda: self.one(KEYS),
            "batch_id": lambda: self.one(self.batches or [self.new("nobody")]),
            "parent_id": self.job,
            "schedule": lambda: self.one(SCHEDULES),
            "node_id": lambda: self.one(self.nodes),
            "created_after": self.past,
            "created_before": self.past,
            "scheduled_after": self.about_now,
            "scheduled_before": self.about_now,
            "parked": lambda: self.happens(0.5),
            "truncated": lambda: self.happens(0.5),
            "superseded_by": self.job,
            "error_type": lambda: self.one(("", "ValueError", "KeyError", "valueerror")),
            "error_contains": lambda: self.one(("card", "Card", "%", "_", "cassé", "CASSÉ", "100%")),
        }
        chosen = self.dice.sample(list(criteria), self.dice.randint(0, 2))
        return JobFilter(**{name: criteria[name]() for name in chosen}, include_archived=self.happens(0.3))

    # --- runs -----------------------------------------------------------------------------------

    def held(self) -> list[Run]:
        """The runs that hold their job, as far as the in-memory store knows."""
        holding = {
            job: claim for node in self.nodes for job, claim in self.known.store.claims_of(node).items()
        }
        return [run for run in self.known.claims if holding.get(run[0]) == run[1]]

    def runs(self, most: int = 3) -> list[Run]:
        """A few different runs: mostly such that hold their job, sometimes lost ones."""
        lost = self.happens(0.12)
        among = list(self.known.claims)[-20:] if lost else self.held()
        by_job = dict(among)
        return [(job, by_job[job]) for job in self.some(list(by_job), most)]

    def show(self, runs: Sequence[Run]) -> str:
        """Runs by the short names of their jobs."""
        return ", ".join(f"{self.name(job)}@{self.name(claim)}" for job, claim in runs)
