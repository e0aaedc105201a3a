"""
Whatever a replaceable part does, no job is stranded, no lane dies, and the node stops when it is told to.

The cells are made from the SPI itself: every method of every part that `Scheduler` takes raises, returns None, returns
nonsense; and each part comes once with only the methods that nothing can do without. A new part or method gets its
cells by itself, and fails here if the jobs below never call it.
"""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from functools import cache
from multiprocessing import forkserver, util
from multiprocessing.context import BaseContext
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints
from uuid import UUID, uuid4

import pytest

from ratchet import (
    Busy,
    ConfigurationError,
    Job,
    JobCanceled,
    JobCompleted,
    JobFailed,
    JobFilter,
    JobStatus,
    JobSubmitted,
    JobType,
    LifecycleHook,
    NotAuthorized,
    Options,
    Scheduler,
    StoreUnavailable,
    TargetNotAllowed,
)
from ratchet.api.targets import TargetRegistry
from ratchet.contrib.encryption import Keyring
from ratchet.defaults import guards
from ratchet.defaults.cluster_coordinator import NoOpClusterCoordinator
from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer
from ratchet.defaults.executor_provider import DefaultExecutorProvider
from ratchet.defaults.instance_resolver import DefaultInstanceResolver
from ratchet.defaults.polling_strategy import AdaptivePollingStrategy
from ratchet.defaults.principal_provider import ContextPrincipalProvider
from ratchet.defaults.resilience import NoOpResilience
from ratchet.defaults.retry_policy import DefaultRetryPolicy
from ratchet.defaults.target_policy import PrefixTargetPolicy
from ratchet.engine import meters
from ratchet.engine.heartbeat import Heartbeat
from ratchet.engine.lanes.event_loop import EventLoopLane
from ratchet.engine.lanes.processes import ProcessLane
from ratchet.engine.lanes.threads import ThreadLane
from ratchet.engine.node import Node
from ratchet.engine.service import Service
from ratchet.model.claim import ClaimRequest
from ratchet.model.job import JobSpec
from ratchet.model.places import key_place
from ratchet.scheduler.parts import Replacements
from ratchet.spi.meters import Meters
from ratchet.spi.tracer import Attempt, Carrier, Submitted, TracedAttempt, Tracer
from ratchet.stores.memory import MemoryStore
from tests.lifecycle import parts_jobs
from tests.support.waiting import happens, until

HERE = "tests.lifecycle"
LANES = ("thread", "async", "process")
#: Everything of a cell ends within so many seconds; that is generous, for a busy machine.
PATIENCE = 30.0
#: Seconds that a slow method takes, longer than claims ahead wait in a node, and how often it is slow.
LONG = 1.2
SLOW_CALLS = 2


class Fault:
    """What a faulty method does instead of its work."""

    def __init__(self, name: str, act: Callable[[], Any]) -> None:
        self.name = name
        self.act = act


def _raiser(error: type[BaseException]) -> Callable[[], Any]:
    def act() -> Any:
        raise error("a fault of a part")

    return act


FAULTS = (
    Fault("raises", _raiser(RuntimeError)),
    Fault("exits", _raiser(SystemExit)),
    Fault("interrupts", _raiser(KeyboardInterrupt)),
    Fault("none", lambda: None),
    Fault("nonsense", object),
)


class Forking(DefaultExecutorProvider):
    """Processes that start in milliseconds: there are many nodes here."""

    def process_context(self) -> BaseContext:
        return forking()


@cache
def forking() -> BaseContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "ratchet.engine.node", parts_jobs.__name__])
    return context


class Reluctant(NoOpResilience):
    """Holds back the first jobs, so that somebody asks for how long."""

    def __init__(self) -> None:
        self._asked = 0

    def permits(self, service: str) -> bool:
        self._asked += 1
        return self._asked > 3


class Hook(LifecycleHook):
    """A hook that does nothing."""


class Permissive:
    """An authorizer that permits everything."""

    def __call__(self, principal: str | None, permission: str, job: object) -> bool:
        return True


class NoMeters(Meters):
    """Meters that keep nothing."""


class Following(Tracer):
    """A tracer that gives every job a trace, and follows every attempt."""

    def submitting(self, submitted: Submitted) -> AbstractContextManager[Carrier]:
        return nullcontext({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})

    def attempt(self, attempt: Attempt) -> TracedAttempt:
        return FollowedAttempt()


class FollowedAttempt(TracedAttempt):
    """An attempt of which nothing is kept."""


#: A part that works, for each argument of `Scheduler` that takes one.
WORKING: dict[str, Callable[[], Any]] = {
    "retry_policy": DefaultRetryPolicy,
    "error_sanitizer": DefaultErrorSanitizer,
    "target_policy": lambda: PrefixTargetPolicy([HERE]),
    "instance_resolver": DefaultInstanceResolver,
    "invocation_resolver": lambda: TargetRegistry(PrefixTargetPolicy()),  # later the scheduler's own
    "executor_provider": Forking,
    "cluster_coordinator": NoOpClusterCoordinator,
    "resilience": Reluctant,
    "polling_strategy": AdaptivePollingStrategy,
    "principal_provider": ContextPrincipalProvider,
    "authorizer": Permissive,
    "lifecycle_hooks": Hook,
    "meters": NoMeters,
    "tracer": Following,
    "codec": lambda: Keyring(active="k", keys={"k": bytes(32)}),
}

#: The methods that the description of Ratchet names; others are ours and may be missing.
NAMED: dict[str, tuple[str, ...]] = {
    "retry_policy": ("should_retry",),
    "error_sanitizer": ("sanitize",),
    "target_policy": ("allows",),
    "instance_resolver": ("resolve",),
    "invocation_resolver": ("describe", "resolve"),
    "executor_provider": (),
    "cluster_coordinator": ("notify_new_work", "register_wakeup_listener"),
    "resilience": ("execute",),
    "polling_strategy": (),
    "principal_provider": ("current",),
    "authorizer": ("__call__",),
    "lifecycle_hooks": ("before_start",),
    "meters": (),
    "tracer": (),
    "codec": ("active_key", "keys", "has_key", "encode", "decode", "hashed"),
}


def protocols() -> dict[str, type]:
    """Every SPI that `Scheduler` takes, by the name of its argument."""
    found: dict[str, type] = {}
    for argument, hint in get_type_hints(Replacements).items():
        for part in (hint, *get_args(hint)):
            if inspect.isclass(part) and part.__module__.startswith("ratchet.spi."):
                found[argument] = part
    return found


def methods_of(protocol: type) -> list[str]:
    found = (name for name, value in vars(protocol).items() if inspect.isfunction(value))
    return [name for name in found if name[0] != "_" or name == "__call__"]


#: The parts that the engine never calls: a fault of theirs is told to who called the verb (`TestSubmissions`).
ASKED_BY_PEOPLE = {"authorizer"}

CELLS = [
    pytest.param(argument, method, fault, id=f"{argument}.{method}-{fault.name}")
    for argument, protocol in protocols().items()
    if argument not in ASKED_BY_PEOPLE
    for method in methods_of(protocol)
    for fault in FAULTS
]


class Faulty:
    """A part of which one method is faulty while it is switched on."""

    def __init__(self, inner: Any, method: str, fault: Fault) -> None:
        self.inner = inner
        self.on = False
        self.calls = 0
        self._method = method
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        if name != self._method:
            return getattr(self.inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.on:
                return getattr(self.inner, name)(*args, **kwargs)
            self.calls += 1
            return self._fault.act()

        return call


class Slow(Faulty):
    """A part of which the first calls of one method take long, and then answer as they should."""

    def __init__(self, inner: Any, method: str) -> None:
        super().__init__(inner, method, Fault("takes long", lambda: time.sleep(LONG)))

    def __getattr__(self, name: str) -> Any:
        if name != self._method:
            return getattr(self.inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.on and self.calls < SLOW_CALLS:
                self.calls += 1
                self._fault.act()
            return getattr(self.inner, name)(*args, **kwargs)

        return call


class Partial:
    """A part with only some of its methods."""

    def __init__(self, inner: Any, names: tuple[str, ...]) -> None:
        self.inner = inner
        for name in names:
            setattr(self, name, self._passed_on(name))

    def _passed_on(self, name: str) -> Callable[..., Any]:
        # Without the signature of the method: what it is called with is what any part must take.
        return lambda *args: getattr(self.inner, name)(*args)


STANDS: list[Stand] = []


def leave_parked(store: MemoryStore) -> None:
    """A stream in which jobs have waited for a key: nodes ask whether they have it."""
    now = store.database_time()
    spec = JobSpec(job_id=uuid4(), target="gone:gone", payload="{}", scheduled_at=now)
    store.insert([spec], now=now)
    (job,) = store.claim_next_batch(ClaimRequest(node_id="gone", claim_id=uuid4(), limit=1), now=now)
    store.park(job.claim, key_place(["old"]), now=now)
    assert store.delete(spec.job_id)


class Stand:
    """A scheduler in memory with one part replaced, and the jobs that were given to it."""

    def __init__(self, **parts: Any) -> None:
        hooks = parts.pop("lifecycle_hooks", None)
        if hooks is not None:
            parts["lifecycle_hooks"] = [hooks]
        parts.setdefault("executor_provider", Forking())
        self.store = MemoryStore()
        self._is_sealed = "codec" in parts
        if self._is_sealed:
            leave_parked(self.store)
        self.threads_before = set(threading.enumerate())  # of other tests, and of the process
        self.scheduler = Scheduler(
            store=self.store,
            allow=None if "target_policy" in parts else [HERE],
            options=Options(concurrency=2, async_concurrency=2, process_concurrency=1),
            **parts,
        )
        if "invocation_resolver" in parts:
            parts["invocation_resolver"].inner = self.scheduler._core.parts.registry
        parts_jobs.declare_process_jobs(self.scheduler)
        self.stored: set[UUID] = set()
        self._faulty = [part for part in parts.values() if isinstance(part, Faulty)]
        STANDS.append(self)

    def end(self) -> None:
        """Leave nothing behind, also after a test that has failed."""
        for part in self._faulty:
            part.on = False
        self.scheduler.stop(drain=False, timeout=0)
        self.scheduler.close()

    def submit(self, function: Any, **more: Any) -> None:
        """Submit one job; if that raises, it must not be stored."""
        with suppress(BaseException):
            builder = self.scheduler.enqueue(function, 7)
            if "retries" in more:
                builder = builder.with_max_retries(more["retries"])
            if self._is_sealed:
                builder = builder.with_business_key(str(uuid4()))
            self.stored.add(builder.submit().id)

    def submit_all(self) -> None:
        """Jobs of every kind for every lane, and one that the target policy refuses."""
        for functions in parts_jobs.KINDS.values():
            for function in functions:
                self.submit(function, retries=1)
        self.submit(print)

    def jobs(self) -> list[Job]:
        return list(self.scheduler.jobs.find(limit=1000))

    def unfinished(self) -> list[str]:
        """
        Jobs that have not ended, though nothing but this node keeps them waiting.

        Not counted are those that are parked until a node comes that knows their target, and callbacks that have
        failed and wait seconds for their next attempt.
        """
        parked = set(self.store.parked_targets())
        return [
            f"{job.target}: {job.status}"
            for job in self.jobs()
            if not job.status.is_terminal and job.target not in parked and not _waits_for_its_retry(job)
        ]

    def assert_all_end(self) -> None:
        ended = happens(lambda: not self.unfinished(), PATIENCE)
        assert ended, f"stranded: {self.unfinished()}"
        assert {job.id for job in self.jobs()} == self.stored, (
            "what is stored was reported so, and nothing else"
        )

    def assert_lanes_live(self) -> None:
        """A plain job succeeds in each lane."""
        for lane, function in zip(LANES, parts_jobs.KINDS["plain"], strict=True):
            handle = self.scheduler.enqueue_now(function, 8)
            self.stored.add(handle.id)
            assert handle.result(timeout=PATIENCE) == 8, f"the {lane} lane is dead"


def _waits_for_its_retry(job: Job) -> bool:
    return job.type is JobType.CALLBACK and job.status is JobStatus.PENDING and job.attempts > 0


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> Iterator[None]:
    """It ends with these tests: its directory is in the scratch directory of the run, which is removed before exit."""
    yield
    forkserver._forkserver._stop()
    for finalizer in list(util._finalizer_registry.values()):
        if finalizer._callback is util._remove_temp_dir:
            finalizer()
    multiprocessing.current_process()._config["tempdir"] = None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Jobs that are held back wait for milliseconds, faults of other tests are forgotten, and no thread dies."""
    monkeypatch.setattr(guards, "RETRY_AFTER", timedelta(milliseconds=20))
    for log in (guards.faults, meters.faults):
        log._seen.clear()
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    while STANDS:
        STANDS.pop().end()
    assert not died, f"threads that died: {died}"


def test_every_part_has_its_cells() -> None:
    """A part that is new in the SPI must be named here: how it works, and which of its methods may not be missing."""
    found = protocols()
    assert set(WORKING) == set(NAMED) == set(found)
    for argument, names in NAMED.items():
        assert set(names) <= set(methods_of(found[argument]))
    called = [protocol for argument, protocol in found.items() if argument not in ASKED_BY_PEOPLE]
    assert len(CELLS) == len(FAULTS) * sum(len(methods_of(protocol)) for protocol in called)


@pytest.mark.parametrize(("argument", "method", "fault"), CELLS)
def test_a_faulty_part_strands_nothing(
    argument: str, method: str, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs of each kind in each lane end, the node goes on, each fault is logged once, and `stop` is True."""
    part = Faulty(WORKING[argument](), method, fault)
    stand = Stand(**{argument: part})
    scheduler = stand.scheduler
    stand.submit_all()
    part.on = True
    with suppress(BaseException):
        scheduler.start()
    if not scheduler.running:
        assert method == "before_start", "nothing else keeps a node from starting"
        assert not stand.store.nodes(), "a start that fails leaves no node behind"
        part.on = False
        scheduler.start()
        part.on = True
    stand.submit_all()
    stand.assert_all_end()
    reasons = {letter.reason for letter in scheduler.dead_letters.find(limit=1000)}
    assert "undecidable" not in reasons, "the guard has an answer; the last resort is not for this"
    part.on = False
    stand.assert_lanes_live()
    part.on = True
    assert scheduler.stop()
    assert not stand.store.nodes()
    assert part.calls, "no job of this test calls the method: add one that does"
    noted = [record.getMessage() for record in caplog.records if record.name == "ratchet.parts"]
    assert len(noted) == len(set(noted)), "each fault is logged once"


@pytest.mark.parametrize(
    ("argument", "method"),
    [
        pytest.param(argument, method, id=f"{argument}.{method}")
        for argument, protocol in protocols().items()
        for method in methods_of(protocol)
    ],
)
def test_a_part_that_takes_long_strands_nothing(argument: str, method: str) -> None:
    """Jobs of each kind in each lane end as they do beside a quick part, nobody is taken for dead, and `stop` is True."""
    part = Slow(WORKING[argument](), method)
    stand = Stand(**{argument: part})
    part.on = True
    with stand.scheduler as scheduler:
        stand.submit_all()
        stand.assert_all_end()
        stand.assert_lanes_live()
        failed = [job for job in stand.jobs() if job.status is JobStatus.FAILED]
        assert {job.error for job in failed} == {"ValueError: value 7"}
        assert len(failed) == len(LANES)
        assert not [job for job in stand.jobs() if job.crashes]
        assert scheduler.stop()
    assert part.calls, "no job of this test calls the method: add one that does"


@pytest.mark.parametrize("argument", NAMED)
def test_the_named_methods_are_enough(argument: str, caplog: pytest.LogCaptureFixture) -> None:
    """A part with no other methods does its work, and nothing is logged about it."""
    stand = Stand(**{argument: Partial(WORKING[argument](), NAMED[argument])})
    with stand.scheduler as scheduler:
        stand.submit_all()
        stand.assert_all_end()
        stand.assert_lanes_live()
        failed = [job for job in stand.jobs() if job.status is JobStatus.FAILED]
        assert {job.error for job in failed} == {"ValueError: value 7"}
        assert len(failed) == len(LANES)
        assert scheduler.stop()
    assert [record for record in caplog.records if record.name in ("ratchet.parts", "ratchet.wakeups")] == []


@pytest.fixture
def misbehavior() -> Iterator[type[parts_jobs.Misbehavior]]:
    parts_jobs.Misbehavior.calls = 0
    yield parts_jobs.Misbehavior
    parts_jobs.Misbehavior.act = None


def listening(stand: Stand) -> None:
    stand.scheduler.on(JobSubmitted, JobCompleted, JobFailed)(parts_jobs.listener)


def surrounded(stand: Stand) -> None:
    stand.scheduler.around(parts_jobs.around)


def called_back(stand: Stand) -> None:
    for functions in parts_jobs.KINDS.values():
        for function in functions[:2]:
            builder = stand.scheduler.enqueue(function, 7)
            builder.on_success(parts_jobs.callback).on_failure(parts_jobs.callback).submit()


def branching(stand: Stand) -> None:
    for function in parts_jobs.KINDS["plain"]:
        stand.scheduler.enqueue(function, 7).when_result(parts_jobs.condition, parts_jobs.plain, 9).submit()


def reporting(stand: Stand) -> None:
    batch = stand.scheduler.enqueue_batch("many").for_each([1, 2, 3], parts_jobs.plain)
    batch.on_progress(parts_jobs.report).submit()


def alerting(stand: Stand) -> None:
    """The function was given to the scheduler: see below."""


@pytest.mark.parametrize(
    "fault", [*FAULTS, Fault("takes long", lambda: time.sleep(LONG / 4))], ids=lambda fault: fault.name
)
@pytest.mark.parametrize("use", [listening, surrounded, called_back, branching, reporting, alerting])
def test_faulty_functions_of_the_user_strand_nothing(
    use: Callable[[Stand], None], fault: Fault, misbehavior: type[parts_jobs.Misbehavior]
) -> None:
    """Listeners, middleware, callbacks, conditions, progress reports and alerts: jobs end, and the node goes on."""
    stand = Stand(alert=parts_jobs.alert) if use is alerting else Stand()
    misbehavior.act = fault.act
    with stand.scheduler as scheduler:
        use(stand)
        heard: list[UUID] = []
        scheduler.on(JobSubmitted)(lambda event: heard.append(event.job_id))
        stand.submit_all()
        assert happens(lambda: not stand.unfinished(), PATIENCE), f"stranded: {stand.unfinished()}"
        assert happens(lambda: misbehavior.calls, PATIENCE), "it was never called"
        assert happens(lambda: stand.stored <= set(heard), PATIENCE), "another listener has missed events"
        misbehavior.act = None
        stand.assert_lanes_live()
        assert scheduler.stop()


class TestBeforeAndAfterTheCall:
    """What a job's own code does outside of its call fails that job, and no other."""

    @pytest.mark.parametrize(
        ("functions", "error"),
        [
            (
                (parts_jobs.Exits.use, parts_jobs.Exits.use_async, parts_jobs.Exits.use_in_process),
                "SystemExit",
            ),
            (
                (
                    parts_jobs.raises_mute,
                    parts_jobs.raises_mute_async,
                    parts_jobs.raises_mute_in_process,
                ),
                "Mute",
            ),
            (
                (
                    parts_jobs.returns_unprintable,
                    parts_jobs.returns_unprintable_async,
                    parts_jobs.returns_unprintable_in_process,
                ),
                None,
            ),
        ],
        ids=["constructor", "message", "result"],
    )
    def test_it_ends_in_each_lane(self, functions: tuple[Any, ...], error: str | None) -> None:
        """A constructor, a message or a result that raises SystemExit: the job fails, its lane goes on."""
        stand = Stand()
        with stand.scheduler as scheduler:
            handles = [scheduler.enqueue(function, 7).submit() for function in functions]
            for handle in handles:
                assert handle.wait(timeout=PATIENCE) is JobStatus.FAILED
                if error is not None:
                    assert error in (scheduler.jobs.get(handle.id).error or "")
            stand.assert_lanes_live()
            assert scheduler.stop()

    @pytest.mark.parametrize("how", ["exit", "interrupt"])
    def test_a_module_that_exits(self, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Jobs of a module whose import calls sys.exit() are parked, as if it were missing; the lanes go on."""
        module = importlib.import_module(f"{HERE}.exits_when_imported")
        stand = Stand()
        submitter = Scheduler(store=stand.store, allow=[HERE])
        ids = [submitter.enqueue(function, 7).submit().id for function in (module.work, module.work_async)]
        monkeypatch.setenv(module.SWITCH, how)
        monkeypatch.delitem(sys.modules, module.__name__)
        with stand.scheduler as scheduler:
            if how == "exit":
                assert happens(lambda: len(stand.store.parked_targets()) == len(ids), PATIENCE)
            else:
                for job_id in ids:
                    assert scheduler.handle(job_id).wait(timeout=PATIENCE) is JobStatus.FAILED
            stand.assert_lanes_live()
            assert scheduler.stop()

    @pytest.mark.parametrize("function", [parts_jobs.exits_in_a_task, parts_jobs.stops_the_loop])
    def test_the_event_loop_survives_its_jobs(self, function: Any) -> None:
        """SystemExit in a task that a job has started, or ``loop.stop()``, ends no other coroutine."""
        stand = Stand()
        with stand.scheduler as scheduler:
            other = scheduler.enqueue(parts_jobs.rests, 0.2).submit()
            ended = scheduler.enqueue(function, 7).submit()
            assert ended.wait(timeout=PATIENCE).is_terminal
            assert other.result(timeout=PATIENCE) == 0.2
            stand.assert_lanes_live()
            assert scheduler.stop()

    def test_a_breaker_that_cannot_be_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The stock breaker meets a row that makes no sense: the jobs of its service run all the same."""
        stand = Stand()

        def unreadable(service: str) -> None:
            raise ValueError(f"{service} is in the state 'ajar'")

        monkeypatch.setattr(stand.store, "breaker", unreadable)
        with stand.scheduler as scheduler:
            for function in parts_jobs.KINDS["service"]:
                assert scheduler.enqueue_now(function, 7).result(timeout=PATIENCE) == 7
            assert scheduler.stop()


class Recording(LifecycleHook):
    """Writes down what is called; its start may fail."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls
        self.fails: BaseException | None = None

    def before_start(self) -> None:
        self.calls.append(f"{self.name}.before_start")
        if self.fails is not None:
            raise self.fails

    def after_start(self) -> None:
        self.calls.append(f"{self.name}.after_start")

    def before_stop(self) -> None:
        self.calls.append(f"{self.name}.before_stop")

    def after_stop(self) -> None:
        self.calls.append(f"{self.name}.after_stop")


class TestFailedStart:
    """A start that fails undoes what it has begun, and the next one works."""

    @pytest.fixture
    def calls(self) -> list[str]:
        return []

    @pytest.fixture
    def hooks(self, calls: list[str]) -> list[Recording]:
        return [Recording(name, calls) for name in "abc"]

    @pytest.fixture
    def stand(self, hooks: list[Recording]) -> Stand:
        made = Stand()
        made.scheduler._core.parts.hooks = tuple(hooks)
        return made

    @staticmethod
    def assert_nothing_is_left(stand: Stand) -> None:
        assert not stand.scheduler.running
        assert not stand.store.nodes()
        left = [
            thread.name
            for thread in set(threading.enumerate()) - stand.threads_before
            if thread.name.startswith("ratchet-")
        ]
        assert left == []

    @pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit("no"), KeyboardInterrupt()])
    def test_hooks_are_paired(
        self, error: BaseException, stand: Stand, hooks: list[Recording], calls: list[str]
    ) -> None:
        """Those whose before_start has returned get their after_stop, in reverse order; the others nothing."""
        hooks[2].fails = error
        with pytest.raises(type(error)):
            stand.scheduler.start()
        started = ["a.before_start", "b.before_start", "c.before_start"]
        assert calls == [*started, "b.after_stop", "a.after_stop"]
        self.assert_nothing_is_left(stand)
        hooks[2].fails = None
        calls.clear()
        with stand.scheduler:
            stand.assert_lanes_live()
        assert calls[:3] == started
        assert calls[-3:] == ["c.after_stop", "b.after_stop", "a.after_stop"]

    @pytest.mark.parametrize(
        ("owner", "step"),
        [
            (Heartbeat, "register"),
            (ThreadLane, "start"),
            (EventLoopLane, "start"),
            (ProcessLane, "start"),
            (Node, "_connect_wakeups"),
        ],
    )
    @pytest.mark.parametrize("error", [RuntimeError, SystemExit])
    def test_every_step_is_undone(
        self,
        owner: type,
        step: str,
        error: type[BaseException],
        stand: Stand,
        calls: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Whichever step fails, also after jobs were claimed: threads end, the node is gone, jobs are handed back."""
        stand.submit_all()
        with monkeypatch.context() as broken:
            broken.setattr(owner, step, lambda *_: _raiser(error)())
            with pytest.raises(error):
                stand.scheduler.start()
        self.assert_nothing_is_left(stand)
        assert [call for call in calls if call.endswith("after_stop")] == [
            "c.after_stop",
            "b.after_stop",
            "a.after_stop",
        ]
        with stand.scheduler:
            stand.assert_all_end()
            stand.assert_lanes_live()

    @pytest.mark.parametrize("last", range(9))
    def test_a_service_without_a_thread(
        self, last: int, stand: Stand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The operating system gives no more threads after some of the services have theirs."""
        begun: list[str] = []
        start = Service.start

        def start_some(service: Service) -> None:
            if len(begun) == last:
                raise RuntimeError("can't start new thread")
            begun.append(service.name)
            start(service)

        with monkeypatch.context() as broken:
            broken.setattr(Service, "start", start_some)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                stand.scheduler.start()
        self.assert_nothing_is_left(stand)
        with stand.scheduler:
            stand.assert_lanes_live()


class TestSubmissions:
    """A submission that is stored is not reported as failed; one that is refused is not stored, and says why."""

    @pytest.mark.parametrize(
        ("argument", "missing"),
        [
            ("target_policy", "allows"),
            ("instance_resolver", "resolve"),
            ("invocation_resolver", "describe"),
            ("principal_provider", "current"),
            ("authorizer", "__call__"),
        ],
    )
    def test_a_part_without_its_main_method_is_refused(self, argument: str, missing: str) -> None:
        """Nothing can stand in for these: the scheduler is not made."""
        with pytest.raises(
            ConfigurationError, match=rf"the {argument} is a object, which has no method {missing}\(\)"
        ):
            Scheduler(store=MemoryStore(), **{argument: object()})

    @pytest.mark.parametrize(("caller", "said"), [(7, "a int"), ("x" * 256, "256 characters")])
    def test_a_caller_that_no_store_can_keep(self, caller: object, said: str) -> None:
        """It is refused before anything is stored, in words that name the part."""
        stand = Stand(principal_provider=SimpleNamespace(current=lambda: caller))
        with pytest.raises(ConfigurationError, match=rf"PrincipalProvider.current\(\) returned {said}"):
            stand.scheduler.enqueue_now(parts_jobs.plain, 7)
        assert stand.jobs() == []

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
    def test_an_authorizer_that_fails_refuses(self, fault: Fault) -> None:
        """Whatever it does but say True: nothing is stored, and what is stored already runs."""
        part = Faulty(Permissive(), "__call__", fault)
        stand = Stand(authorizer=part)
        before = stand.scheduler.enqueue_now(parts_jobs.plain, 7)
        part.on = True
        with pytest.raises(NotAuthorized, match="may not submit"):
            stand.scheduler.enqueue_now(parts_jobs.plain, 7)
        assert [record.job_id for record in stand.store.find(JobFilter(), limit=9)] == [before.id]
        with stand.scheduler:
            until(lambda: stand.store.results([before.id])[before.id].status is JobStatus.SUCCEEDED)

    def test_a_policy_without_a_hint_still_refuses(self) -> None:
        """The message says what to change, in other words."""
        stand = Stand(target_policy=SimpleNamespace(allows=lambda target: False))
        with pytest.raises(TargetNotAllowed, match="change the target_policy of the scheduler"):
            stand.scheduler.enqueue_now(parts_jobs.plain, 7)

    def test_a_replaced_job_that_cannot_be_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The store goes away right after the commit: the event is lost, the submission is not reported as failed."""
        stand = Stand()
        stand.scheduler.on(JobCanceled)(lambda event: None)

        def submit() -> UUID:
            builder = stand.scheduler.enqueue(parts_jobs.plain, 7)
            return builder.with_business_key("k", busy=Busy.REPLACE).submit().id

        first = submit()

        def away(job_id: UUID) -> None:
            raise StoreUnavailable("away")

        with monkeypatch.context() as broken:
            broken.setattr(stand.store, "get", away)
            second = submit()
        assert {job.id: job.status for job in stand.jobs()} == {
            first: JobStatus.CANCELED,
            second: JobStatus.PENDING,
        }
