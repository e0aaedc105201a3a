"""
The surface: every promised name is there, documented, typed and cheap to import.

``public_api.txt`` beside this file shows every public name with its signature; a change of the
surface is a diff there. Write it anew with ``RATCHET_API_SNAPSHOT=write pytest`` of this file.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import os
import re
import subprocess
import sys
import textwrap
import typing
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ratchet
import ratchet.testing
from ratchet import Options, Scheduler
from ratchet.aio import AsyncScheduler
from ratchet.api.submit.builders import GraphDraft
from ratchet.model.settings import Setting

SNAPSHOT = Path(__file__).with_name("public_api.txt")

#: Everything the API page imports, or names.
PROMISED = [
    "Scheduler",
    "Options",
    "BackoffPolicy",
    "Priority",
    "Busy",
    "JobStatus",
    "JobType",
    "JobFilter",
    "Job",
    "Execution",
    "LogLine",
    "DeadLetter",
    "Page",
    "JobHandle",
    "SortBy",
    "BusinessKeyBusy",
    "JobNotFound",
    "JobFailedError",
    "JobCanceledError",
    "UnsubmittedJobWarning",
    "TargetNotAllowed",
    "SchemaOutOfDate",
    "JobEvent",
    "JobStarted",
    "JobCompleted",
    "JobFailed",
    "JobRetrying",
    "JobDeadLettered",
    "JobCanceled",
    "JobPaused",
    "JobResumed",
    "JobTimedOut",
    "JobCallbackFailed",
    "BatchCompleted",
    "JobSignaled",
    "JobSignalTimedOut",
    "BranchTaken",
    "BatchProgressed",
    "JobsRetried",
    "JobsCanceled",
    "NodeJoined",
    "NodeLost",
    "BreakerOpened",
    "BreakerClosed",
    "Reason",
    "JobContext",
    "JobInterrupted",
    "RetryLater",
    "do_not_retry",
    "circuit_breaker",
    "BreakerProfile",
    "JobError",
    "JobResult",
    "RESULT",
    "RESULTS",
    "Condition",
    "Join",
    "BatchHandle",
    "BatchContext",
    "Schedule",
    "Misfire",
    "Overlap",
    "call",
]

#: What the API page calls on each of them.
MEMBERS = {
    Scheduler: """
        job enqueue enqueue_now schedule enqueue_many submit_all handle migrate
        cancel_job pause_job resume_job retry_job retry_jobs cancel_jobs replace reschedule_job set_priority explain
        jobs dead_letters nodes health on around join enqueue_batch streaming_batch schedule_recurring recurring signal
        schedules limits breakers queues start stop run close aio __enter__ __exit__
    """,
    ratchet.JobBuilder: """
        with_priority with_idempotency_key with_business_key with_max_retries with_backoff with_timeout with_delay at
        with_expiry with_tags with_param with_resource with_queue immediate on_success on_failure submit
        then when when_result then_on_success then_on_failure branch await_signal with_concurrency_key with_rate_key with_fairness_key
    """,
    ratchet.JobHandle: """
        id status result wait job progress cancel pause resume retry set_priority explain duplicate steps last graph aio
    """,
    ratchet.JobContext: """
        current job_id attempt params param logger node_id signal progress state save check_canceled transaction
    """,
    ratchet.BatchBuilder: """
        for_each on_progress then_on_batch_success then_on_batch_failure then_when_success_rate then_when_failure_count
        then_when_batch submit
    """,
    ratchet.StreamingBatchBuilder: "from_iterable process with_chunk_size then_on_batch_success start",
    ratchet.BatchHandle: "id name context wait cancel retry_failed jobs results",
    ratchet.Schedule: "name next_fire_at pause resume trigger remove runs next_fires",
    ratchet.Join: "ALL at_least",
    ratchet.Misfire: "skip fire_once catch_up",
    ratchet.Overlap: "ALLOW SKIP QUEUE",
    ratchet.Busy: "RAISE RETURN REPLACE",
    ratchet.Priority: "LOWEST LOW NORMAL HIGH CRITICAL",
    ratchet.BackoffPolicy: "NONE FIXED EXPONENTIAL",
    ratchet.JobStatus: "PENDING RUNNING SUCCEEDED FAILED PAUSED CANCELED WAITING",
    ratchet.Condition: "custom",
    ratchet.BreakerProfile: "DEFAULT FAST CRITICAL EXTERNAL_API",
    ratchet.Page: "items next_cursor __iter__",
    Options: "from_toml concurrency async_concurrency process_concurrency heartbeat silence max_crashes auto_migrate",
    ratchet.testing.ManualScheduler: "drain assert_enqueued",
    ratchet.testing.ManualClock: "advance",
}

FIELDS = {
    ratchet.Job: """
        id target args kwargs status type priority queue tags params created_at scheduled_at started_at finished_at
        expires_at attempts max_retries crashes error error_type result progress node_id business_key idempotency_key
        parent_id batch_id schedule superseded_by canceled_reason caller updated_at
    """,
    ratchet.Execution: "attempt node_id started_at finished_at duration queue_wait status error traceback counted",
    ratchet.LogLine: "at level logger message attempt",
    ratchet.DeadLetter: "job_id target error reason attempts failed_at alerts",
    ratchet.DeadLetterGroup: "target error_type message count first_at last_at sample",
    ratchet.JobEvent: "job_id target status attempt priority business_key node_id at type schedule",
    ratchet.JobFailed: "error will_retry",
    ratchet.JobRetrying: "error scheduled_at",
    ratchet.JobDeadLettered: "error reason attempts",
    ratchet.JobCanceled: "previous reason",
    ratchet.JobTimedOut: "timeout",
    ratchet.JobsRetried: "filter count",
    ratchet.JobsCanceled: "filter count",
    ratchet.BatchContext: "batch_id total_items completed_items failed_items canceled_items is_complete",
    ratchet.Signal: "key payload approved reason delivered_at",
}

FACADES = {
    "jobs": "get find count counts executions logs delete",
    "dead_letters": "find summary purge",
    "nodes": "list",
    "schedules": "get list",
    "limits": "set set_rate list remove",
    "breakers": "list open reset",
    "queues": "list pause resume",
}


def _fields_of(cls: type) -> list[str]:
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return list(cls.__struct_fields__)  # type: ignore[attr-defined]


class TestNames:
    @pytest.mark.parametrize("name", PROMISED)
    def test_promised_names(self, name: str) -> None:
        """Every name of the API page can be imported from ratchet, is listed, and has a docstring."""
        assert name in ratchet.__all__
        assert inspect.getdoc(getattr(ratchet, name)), f"{name} has no docstring"

    @pytest.mark.parametrize("name", sorted(ratchet.__all__))
    def test_every_public_name_exists(self, name: str) -> None:
        """`__all__` lists only what is there, and all of it is documented."""
        thing = getattr(ratchet, name)
        assert name == "__version__" or inspect.getdoc(thing)

    @pytest.mark.parametrize(
        ("cls", "names"), [pytest.param(c, n, id=c.__name__) for c, n in MEMBERS.items()]
    )
    def test_members(self, cls: type, names: str) -> None:
        """Every verb and attribute of the API page exists and says what it does."""
        instance_attributes = set(getattr(cls, "__slots__", ())) | set(getattr(cls, "__annotations__", ()))
        for name in names.split():
            assert hasattr(cls, name) or name in instance_attributes, f"{cls.__name__}.{name} is missing"
            member = inspect.getattr_static(cls, name, None)
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert inspect.getdoc(member), f"{cls.__name__}.{name} has no docstring"

    @pytest.mark.parametrize(("cls", "names"), [pytest.param(c, n, id=c.__name__) for c, n in FIELDS.items()])
    def test_fields(self, cls: Any, names: str) -> None:
        """Values carry the fields of the API page."""
        assert set(names.split()) <= set(_fields_of(cls))

    @pytest.mark.parametrize("facade", FACADES)
    def test_facades(self, facade: str) -> None:
        """``scheduler.jobs`` and its neighbors have their verbs, and so have their awaitable twins."""
        scheduler = ratchet.testing.manual_scheduler()
        for face in (getattr(scheduler, facade), getattr(scheduler.aio, facade)):
            for name in FACADES[facade].split():
                assert inspect.getdoc(getattr(face, name)), f"{type(face).__name__}.{name}"

    def test_constructor_keywords(self) -> None:
        """Every SPI can be replaced by a keyword of `Scheduler`."""
        wanted = """
            url allow options retry_policy error_sanitizer target_policy instance_resolver invocation_resolver
            executor_provider cluster_coordinator resilience polling_strategy principal_provider lifecycle_hooks clock
        """
        assert set(wanted.split()) <= set(inspect.signature(Scheduler).parameters)

    def test_filter_criteria(self) -> None:
        """`JobFilter` takes every criterion of the API page."""
        wanted = """
            statuses tags targets queue types priorities business_key batch_id parent_id schedule node_id created_after
            created_before scheduled_after scheduled_before error_contains include_archived caller superseded_by args parked
            truncated trace_id error_type
        """
        assert set(wanted.split()) == {field.name for field in dataclasses.fields(ratchet.JobFilter)}

    def test_imports_for_people_and_for_checkers_agree(self) -> None:
        """The lazy table and the imports that type checkers read name the same things from the same places."""
        source = inspect.getsource(ratchet)
        block = source.partition("if TYPE_CHECKING:")[2].partition("\n\n    __version__")[0]
        found: dict[str, str] = {}
        for module, names in re.findall(r"from ([\w.]+) import (\([^)]*\)|[^\n]*)", block):
            for name in re.findall(r"\w+", names):
                found[name] = module
        homes = {name: home for name, home in ratchet._HOMES.items() if name not in ("RESULT", "RESULTS")}
        assert found == homes
        assert set(ratchet.__all__) == {*ratchet._HOMES, "__version__"}

    def test_an_unknown_name(self) -> None:
        """A misspelled import is an ordinary error."""
        with pytest.raises(AttributeError, match="Schedular"):
            ratchet.Schedular  # type: ignore[attr-defined] # noqa: B018


class TestImports:
    def run(self, code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def test_import_is_cheap(self) -> None:
        """``import ratchet`` takes under 100 ms of processor time; the best of a few tries, on whatever machine this is."""
        code = "import time; t = time.process_time(); import ratchet; print(time.process_time() - t)"
        assert min(float(self.run(code)) for _ in range(3)) < 0.1

    def test_no_driver_and_no_framework(self) -> None:
        """Declaring jobs on a scheduler imports no driver but the one its URL names, and opens nothing."""
        code = textwrap.dedent("""
            import sys
            from ratchet import Scheduler
            scheduler = Scheduler("sqlite:///nowhere/at/all.db")

            @scheduler.job(max_retries=3)
            def charge(number): ...

            @scheduler.recurring("* * * * *", name="x")
            def sync(): ...

            unwanted = {"psycopg", "psycopg_pool", "pymysql", "pymongo", "redis", "sqlalchemy", "typer", "rich",
                        "fastapi", "flask", "django", "starlette", "pytest"}
            print(sorted(unwanted & set(sys.modules)))
        """)
        assert self.run(code) == "[]"


def signature_of(thing: Any) -> str:
    try:
        return str(inspect.signature(thing))
    except (TypeError, ValueError):
        return "(...)"


def described(name: str, thing: Any) -> list[str]:
    """One name of the surface, with its members, as lines of text."""
    if not inspect.isclass(thing):
        return [f"{name}{signature_of(thing)}" if callable(thing) else f"{name}: {type(thing).__name__}"]
    lines = [f"class {name}"]
    if issubclass(thing, enum.Enum):
        return lines + [f"    {member.name}" for member in thing]
    if issubclass(thing, msgspec.Struct):
        lines += [f"    {field}: {thing.__annotations__.get(field, '')}" for field in thing.__struct_fields__]
    elif dataclasses.is_dataclass(thing) and thing is not Options:
        lines += [f"    {field.name}: {field.type}" for field in dataclasses.fields(thing)]
    elif not issubclass(thing, BaseException | typing.Protocol) and "__init__" in vars(thing):
        lines[0] += re.sub(r"^\(self, ", "(", signature_of(thing.__init__)).replace(" -> None", "")
    for base in [thing, *thing.__mro__[1:]]:
        if base.__module__.partition(".")[0] != "ratchet":
            continue
        for member, value in sorted(vars(base).items()):
            if member.startswith("_") or any(re.match(rf"    {member}\b", line) for line in lines):
                continue
            if isinstance(value, property | cached_property | Setting):
                lines.append(f"    {member}: property")
            elif isinstance(value, classmethod | staticmethod):
                lines.append(f"    {member}{signature_of(value.__func__)}")
            elif inspect.isfunction(value):
                lines.append(f"    {member}{signature_of(value)}")
    return lines


def surface() -> str:
    lines: list[str] = []
    for name in sorted(ratchet.__all__):
        if name != "__version__":
            lines += described(f"ratchet.{name}", getattr(ratchet, name))
    lines += described("ratchet.aio.AsyncScheduler", AsyncScheduler)
    for name in ratchet.testing.__all__:
        lines += described(f"ratchet.testing.{name}", getattr(ratchet.testing, name))
    return "\n".join(lines) + "\n"


class TestSnapshot:
    @pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="annotations print differently elsewhere")
    def test_the_surface_is_the_one_on_file(self) -> None:
        """Every change of a public name or signature is seen, and confirmed by writing the file anew."""
        now = surface()
        if os.environ.get("RATCHET_API_SNAPSHOT") == "write":
            SNAPSHOT.write_text(now)
        assert now == SNAPSHOT.read_text(), "the public API changed; RATCHET_API_SNAPSHOT=write confirms it"


def test_builders_share_their_verbs() -> None:
    """The sync and the async builder differ in their last verb alone."""
    shared = {name for name in vars(GraphDraft) if not name.startswith("_")}
    assert not shared & set(vars(ratchet.JobBuilder))
    assert not shared & set(vars(ratchet.AsyncJobBuilder))
