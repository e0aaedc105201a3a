"""The metrics: their names, units and labels, in one list that exporters and the reference page read."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

#: Upper limits of the buckets of every histogram, in seconds: from 1 ms to 1 h.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)  # fmt: skip
#: The label of everything beyond the limit on labels (`Options.metric_labels`).
OTHER = "other"


class MetricKind(StrEnum):
    """What a metric's numbers mean."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(Struct, frozen=True):
    """One metric. Labels are targets, queues, lanes and states: never ids or keys, of which there is no end."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""


class Labels:
    """The values of a label, of which there are at most so many; the rest is `OTHER`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def of(self, value: str) -> str:
        """The label for *value*."""
        known = self._known.get(value)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            return OTHER
        self._known[value] = value
        return value

    def known(self) -> list[str]:
        """Every label so far."""
        return list(self._known)


_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

JOBS = Metric("ratchet_jobs_total", _C, "Runs that ended, by how they ended.", ("target", "queue", "outcome"))
JOB_DURATION = Metric(
    "ratchet_job_duration_seconds",
    _H,
    "How long the code of a run took.",
    ("target", "queue"),
    unit="seconds",
)
JOB_WAIT = Metric(
    "ratchet_job_wait_seconds",
    _H,
    "How long a job was due before its run started.",
    ("queue",),
    unit="seconds",
)
JOBS_RUNNING = Metric("ratchet_jobs_running", _G, "Jobs that run on this node now.", ("queue",))
SLOTS = Metric("ratchet_slots", _G, "Jobs that this node may run at the same time.", ("lane",))
SLOTS_BUSY = Metric("ratchet_slots_busy", _G, "Slots that are taken.", ("lane",))
STILL_RUNNING = Metric(
    "ratchet_still_running", _G, "Attempts that were ended (timeout, cancel) whose code still runs here."
)
UNWRITTEN = Metric("ratchet_unwritten_outcomes", _G, "Runs that have ended and wait for their commit.")
CLAIMED = Metric("ratchet_jobs_claimed_total", _C, "Jobs that this node has claimed.", ("lane",))
CLAIM_DURATION = Metric(
    "ratchet_claim_duration_seconds", _H, "How long the store took for a claim.", unit="seconds"
)
COMPLETION_DURATION = Metric(
    "ratchet_completion_duration_seconds",
    _H,
    "How long the store took to commit a batch of outcomes.",
    unit="seconds",
)
RESCUES = Metric("ratchet_rescues_total", _C, "Dead nodes whose jobs this node has taken back.")
WAKEUPS = Metric("ratchet_wakeups_total", _C, "Wakeups that this node has heard.")
STORE_ERRORS = Metric("ratchet_store_errors_total", _C, "Claims and commits that the store has refused or not answered.", ("error",))  # fmt: skip

# --- of the store: one answer for the whole cluster

QUEUE_DEPTH = Metric(
    "ratchet_queue_depth",
    _G,
    "Jobs that run, and that wait although they are due, also behind closed gates; counted up to 10,000 in all.",
    ("queue", "status"),
)
OLDEST_AGE = Metric(
    "ratchet_queue_oldest_age_seconds",
    _G,
    "How long the oldest due job has been waiting.",
    ("queue",),
    "seconds",
)
DEAD_LETTERS = Metric("ratchet_dead_letters", _G, "Jobs that failed for good; counted up to 10,000.")
NODES = Metric("ratchet_nodes", _G, "Nodes of the cluster, by state.", ("state",))
BREAKER_OPEN = Metric(
    "ratchet_breaker_open", _G, "1 while the circuit breaker of a service is open.", ("service",)
)
SCHEDULE_LATENESS = Metric(
    "ratchet_schedule_lateness_seconds",
    _G,
    "How late the most overdue schedule is.",
    unit="seconds",
)
PARKED_JOBS = Metric("ratchet_parked_jobs", _G, "Due jobs that no node can run: their function is missing.")
HEALTHY = Metric("ratchet_healthy", _G, "1 while `ratchet health` finds no problem.")
PROBLEMS = Metric(
    "ratchet_problems", _G, "1 while `ratchet health` finds a problem of this kind, else 0.", ("code",)
)

# --- of a worker: what its supervisor sees

WORKER_LIVE = Metric("ratchet_worker_live", _G, "1 while `/live` answers 200.")
WORKER_READY = Metric("ratchet_worker_ready", _G, "1 while `/ready` answers 200.")
PROCESS_DEATHS = Metric(
    "ratchet_process_deaths_total",
    _C,
    "Processes of this worker that ended without being told to, and were replaced.",
)

#: What each node measures by itself.
NODE_METRICS = (
    JOBS, JOB_DURATION, JOB_WAIT, JOBS_RUNNING, SLOTS, SLOTS_BUSY, STILL_RUNNING, UNWRITTEN, CLAIMED, CLAIM_DURATION,
    COMPLETION_DURATION, RESCUES, WAKEUPS, STORE_ERRORS,
)  # fmt: skip
#: What the store knows.
STORE_METRICS = (
    QUEUE_DEPTH, OLDEST_AGE, DEAD_LETTERS, NODES, BREAKER_OPEN, SCHEDULE_LATENESS, PARKED_JOBS, HEALTHY, PROBLEMS,
)  # fmt: skip
#: What ``ratchet worker --http`` adds.
WORKER_METRICS = (WORKER_LIVE, WORKER_READY, PROCESS_DEATHS)
METRICS = NODE_METRICS + STORE_METRICS + WORKER_METRICS
