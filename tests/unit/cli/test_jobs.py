"""``ratchet jobs`` and ``ratchet dlq``: what they show, what they change, how they refuse."""

from __future__ import annotations

import re
import shlex
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider

from ratchet.contrib.opentelemetry import OpenTelemetryTracer
from ratchet.model.cluster import NodeChange, NodeSpec
from ratchet.model.job import JobFilter
from ratchet.model.options import Options
from ratchet.model.status import JobStatus, Priority
from ratchet.scheduler import Scheduler
from ratchet.stores import open_store
from tests.integration.raw_values import raw
from tests.support.waiting import until
from tests.unit.cli import errands
from tests.unit.cli.conftest import CommandLine, World


def statuses(scheduler: Scheduler, *ids: UUID) -> list[JobStatus]:
    return [scheduler.jobs.get(identity).status for identity in ids]


# --- looking


def test_list_shows_every_job(ratchet: CommandLine, world: World) -> None:
    """People get a table with whole ids; machines the same jobs, newest first."""
    shown = ratchet("jobs", "list").stdout
    found = ratchet.json("jobs", "list")
    assert len(found["jobs"]) == 5
    assert found["next_cursor"] is None
    for job in found["jobs"]:
        assert job["id"] in shown
        assert job["status"] in shown
    assert [job["id"] for job in found["jobs"]] == sorted((j["id"] for j in found["jobs"]), reverse=True)


def test_a_row_that_cannot_be_read_is_shown(ratchet: CommandLine, scheduler: Scheduler, url: str) -> None:
    """The list has it beside the others, `show` says which column cannot be read and what stands there, `explain` why it waits."""
    sound, bad = (scheduler.enqueue_now(errands.greet, "ann").id for _ in range(2))
    with closing(open_store(url, Options())) as store, raw(store) as rows:
        assert rows.write("scheduler_job", bad, "backoff", "'LINEAR'")
        assert rows.write("scheduler_job_queue", bad, "stream_id", "99")
    listed = ratchet("jobs", "list").stdout
    assert str(sound) in listed
    assert str(bad) in listed
    shown = ratchet("jobs", "show", bad).stdout
    assert "backoff is 'LINEAR'" in shown
    assert "stream_id is 99" in ratchet("jobs", "explain", bad).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--status", "failed"], {"failed"}),
        (["--status", "failed,canceled"], {"failed", "canceled"}),
        (["--status", "PENDING", "--status", "PAUSED"], {"pending", "paused"}),
        (["--tag", "billing"], {"failed"}),
        (["--target", "tests.unit.cli.errands:fail"], {"failed"}),
        (["--queue", "nowhere"], set()),
        (["--priority", "normal", "--type", "single", "--status", "succeeded"], {"succeeded"}),
        (["--error", "broken"], {"failed"}),
        (["--since", "1h"], {"succeeded", "failed", "pending", "paused", "canceled"}),
        (["--until", "1h"], set()),
        (["--parked"], set()),
        (["--truncated"], set()),
        (["--caller", "nobody"], set()),
        (["--arg", "0=nothing of the kind"], set()),
        (["--trace", "4bf92f3577b34da6a3ce929d0e0e4736"], set()),
        (["--superseded-by", "0190a5d2-6c1f-7b3e-9a44-2f1c5f0c9e11"], set()),
        (["--since", "2000-01-01T00:00", "--until", "2001-01-01T00:00:00+00:00"], set()),
    ],
)
def test_list_filters(ratchet: CommandLine, world: World, words: list[str], expected: set[str]) -> None:
    """Each option restricts the list, and they combine with AND."""
    found = {job["id"] for job in ratchet.json("jobs", "list", *words)["jobs"]}
    assert found == {str(getattr(world, name)) for name in expected}


def test_jobs_of_a_trace(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """They are listed by its id, or by a whole traceparent, and each shows it; what is no id is refused."""
    scheduler.add_tracer(OpenTelemetryTracer(TracerProvider().get_tracer("test"), str))
    one, other = (scheduler.enqueue_now(errands.greet, "ann").id for _ in range(2))
    trace = ratchet.json("jobs", "show", one)["job"]["trace_id"]
    for given in (trace, f"00-{trace}-00f067aa0ba902b7-01"):
        assert [job["id"] for job in ratchet.json("jobs", "list", "--trace", given)["jobs"]] == [str(one)]
    shown = ratchet("jobs", "show", one).stdout
    assert trace in shown
    assert "ratchet:trace" not in shown
    assert trace not in ratchet("jobs", "show", other).stdout
    refused = ratchet("jobs", "list", "--trace", "abc", code=2)
    assert "32 hexadecimal digits" in " ".join(refused.stderr.split())


def test_sorted_list(ratchet: CommandLine, world: World) -> None:
    """By end, those that have not ended last; a word that is no sort is refused."""
    jobs = ratchet.json("jobs", "list", "--sort", "finished")["jobs"]
    ends = [job["finished_at"] for job in jobs]
    ended = [end for end in ends if end is not None]
    assert ends == sorted(ended, reverse=True) + [None] * (len(ends) - len(ended))
    oldest = ratchet.json("jobs", "list", "--ascending")["jobs"]
    assert [job["id"] for job in oldest] == sorted(job["id"] for job in oldest)
    assert "size" in ratchet("jobs", "list", "--sort", "size", code=2).stderr


def test_list_goes_on_where_it_ended(ratchet: CommandLine, world: World) -> None:
    """The cursor of one page leads to the next, without gaps or repeats."""
    first = ratchet.json("jobs", "list", "--limit", 3)
    assert first["next_cursor"] in ratchet("jobs", "list", "--limit", 3).stdout
    second = ratchet.json("jobs", "list", "--limit", 3, "--cursor", first["next_cursor"])
    ids = [job["id"] for job in first["jobs"] + second["jobs"]]
    assert len(ids) == len(set(ids)) == 5


def test_counts(ratchet: CommandLine, world: World) -> None:
    """How many jobs are in each state, every state named."""
    counts = ratchet.json("jobs", "list", "--counts")
    assert set(counts) == {status.value for status in JobStatus}
    assert counts["SUCCEEDED"] == counts["FAILED"] == counts["PENDING"] == counts["PAUSED"] == 1
    assert "SUCCEEDED" in ratchet("jobs", "list", "--counts").stdout


def test_show_draws_the_graph(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """A job that was submitted with others is shown with them, as a tree with states; a single one is not."""
    handle = (
        scheduler.enqueue(errands.greet, "ann").then(errands.greet, "bob").then_on_failure(errands.fail, "no")
    ).submit()
    shown = [line.strip() for line in ratchet("jobs", "show", handle.id).stdout.splitlines()]
    start = shown.index("tests.unit.cli.errands:greet PENDING")
    assert shown[start : start + 3] == [
        "tests.unit.cli.errands:greet PENDING",
        "tests.unit.cli.errands:greet WAITING",
        "on failure: tests.unit.cli.errands:fail WAITING",
    ]
    found = ratchet.json("jobs", "show", handle.id)["graph"]
    assert (len(found["nodes"]), len(found["edges"])) == (3, 2)
    alone = scheduler.enqueue(errands.greet, "cid").submit()
    assert ratchet.json("jobs", "show", alone.id)["graph"] is None


def test_show_tells_all_about_a_job(ratchet: CommandLine, world: World) -> None:
    """Call, result and runs for people; job and executions for machines."""
    shown = ratchet("jobs", "show", world.succeeded).stdout
    assert "tests.unit.cli.errands:greet('ann')" in shown
    assert "hello ann" in shown
    found = ratchet.json("jobs", "show", world.succeeded)
    assert found["job"]["result"] == "hello ann"
    assert [run["status"] for run in found["executions"]] == ["SUCCEEDED"]
    assert found["waiting_for"] == []


def test_show_has_tracebacks_without_credentials(ratchet: CommandLine, world: World) -> None:
    """The traceback is shown on request; what was planted in it is not (checked for every command)."""
    assert "Traceback of attempt" not in ratchet("jobs", "show", world.failed).stdout
    shown = ratchet("jobs", "show", world.failed, "--traceback").stdout
    assert "Traceback of attempt 1" in shown
    assert "raise RuntimeError" in shown
    assert "broken" in shown


def test_explain_says_why_a_job_waits(ratchet: CommandLine, world: World) -> None:
    """A job that is due later says so; one that has ended says that."""
    reasons = ratchet.json("jobs", "explain", world.pending)["reasons"]
    assert reasons
    assert reasons[0]["text"] in ratchet("jobs", "explain", world.pending).stdout.replace("\n", " ")
    assert "has ended: SUCCEEDED" in ratchet("jobs", "explain", world.succeeded).stdout
    assert ratchet.json("jobs", "explain", world.succeeded)["reasons"] == []
    assert ratchet.json("jobs", "show", world.paused)["waiting_for"]


def test_explain_of_a_job_that_could_run(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """Only a node is missing, and that is what it says; with a node that has room, nothing keeps the job."""
    handle = scheduler.enqueue_now(errands.greet, "eve")
    (reason,) = ratchet.json("jobs", "explain", handle.id)["reasons"]
    assert (reason["code"], reason["blockers"]) == ("no_nodes", [])
    assert "start one" in ratchet("jobs", "explain", handle.id).stdout
    now = datetime.now(UTC)
    node = NodeSpec(
        node_id="n1", name="n1", host="h", pid=7, version="1",
        beat_interval=timedelta(seconds=1), silence=timedelta(minutes=1),
        info='{"lanes": {"thread": 1, "async": 1, "process": 1}}',
    )  # fmt: skip
    scheduler.backend.store.register(node, now=now)
    assert "nothing keeps" in ratchet("jobs", "explain", handle.id).stdout
    assert ratchet.json("jobs", "explain", handle.id)["reasons"] == []
    full = NodeChange(
        beat_interval=timedelta(seconds=1),
        silence=timedelta(minutes=1),
        info='{"lanes": {"thread": 1}, "queues": ["emails"]}',
    )
    assert scheduler.backend.store.beat("n1", now=now, change=full).alive
    (reason,) = ratchet.json("jobs", "explain", handle.id)["reasons"]
    assert reason["code"] == "no_node_for_queue"
    assert [(one["kind"], one["node_id"], one["pid"]) for one in reason["blockers"]] == [("node", "n1", 7)]
    shown = ratchet("jobs", "explain", handle.id).stdout
    assert "Held back by" in shown
    assert "h:7" in shown


def test_logs_of_a_job(ratchet: CommandLine, world: World) -> None:
    """What it logged, in order, without credentials."""
    assert "greeting ann" in ratchet("jobs", "logs", world.succeeded).stdout
    lines = ratchet.json("jobs", "logs", world.failed)["lines"]
    assert [line["level"] for line in lines] == ["ERROR"]
    assert "connecting with" in lines[0]["message"]
    assert "it logged nothing" in ratchet("jobs", "logs", world.pending).stdout


# --- changing


def test_cancel_pause_resume_retry_delete(ratchet: CommandLine, world: World, scheduler: Scheduler) -> None:
    """Each verb does what it says, to the jobs named."""
    assert ratchet.json("jobs", "pause", world.pending) == {"paused": [str(world.pending)], "refused": []}
    assert str(world.pending) in ratchet("jobs", "resume", world.pending, world.paused).stdout
    assert statuses(scheduler, world.pending, world.paused) == [JobStatus.PENDING, JobStatus.PENDING]
    ratchet("jobs", "cancel", world.pending, world.paused)
    assert statuses(scheduler, world.pending, world.paused) == [JobStatus.CANCELED, JobStatus.CANCELED]
    ratchet("jobs", "retry", world.failed)
    assert statuses(scheduler, world.failed) == [JobStatus.PENDING]
    ratchet("jobs", "delete", world.succeeded, "--yes")
    assert "there is no job" in ratchet("jobs", "show", world.succeeded, code=3).stderr


def test_run_now_makes_a_job_due(ratchet: CommandLine, world: World, scheduler: Scheduler) -> None:
    """A job of next hour is due now, and runs; one that is paused or has ended is refused, and keeps its time."""
    due = scheduler.jobs.get(world.paused).scheduled_at
    found = ratchet.json("jobs", "run-now", world.pending, world.paused, world.failed, code=1)
    assert found["due_now"] == [str(world.pending)]
    assert [text.partition(" ")[2] for text in found["refused"]] == [
        "(PAUSED) is not PENDING; resume or retry it",
        "(FAILED) is not PENDING; resume or retry it",
    ]
    assert scheduler.jobs.get(world.paused).scheduled_at == due
    assert "not_due" not in {reason.code for reason in scheduler.explain(world.pending)}
    with scheduler:
        scheduler.handle(world.pending).wait(timeout=20)
    assert statuses(scheduler, world.pending) == [JobStatus.SUCCEEDED]


def test_set_priority_of_named_jobs(ratchet: CommandLine, world: World, scheduler: Scheduler) -> None:
    """Those that have not started get it; the others are refused, and a word that is no priority is named."""
    found = ratchet.json("jobs", "set-priority", world.pending, world.paused, world.failed, "high", code=1)
    assert found["now_HIGH"] == [str(world.pending), str(world.paused)]
    assert [text.partition(" ")[2] for text in found["refused"]] == [
        "(FAILED) is not PENDING, PAUSED or WAITING"
    ]
    levels = [scheduler.jobs.get(one).priority for one in (world.pending, world.paused, world.failed)]
    assert levels == [Priority.HIGH, Priority.HIGH, Priority.NORMAL]
    assert "none of LOWEST" in ratchet("jobs", "set-priority", world.pending, "urgent", code=2).stderr


def test_set_priority_of_all_that_match(ratchet: CommandLine, world: World, scheduler: Scheduler) -> None:
    """Only looked at with --dry-run; never without a filter; jobs that have ended or have it already are not counted."""
    target = scheduler.jobs.get(world.pending).target
    waiting = [
        record
        for record in scheduler.jobs.find(JobFilter(targets=[target]))
        if record.status in (JobStatus.PENDING, JobStatus.PAUSED, JobStatus.WAITING)
    ]
    found = ratchet.json("jobs", "set-priority", "low", "--target", target, "--dry-run")
    assert found == {"would_change": len(waiting)}
    assert scheduler.jobs.get(world.pending).priority is Priority.NORMAL
    assert "would match every job" in ratchet("jobs", "set-priority", "low", "--yes", code=1).stderr
    found = ratchet.json("jobs", "set-priority", "low", "--target", target, "--yes")
    assert found == {"changed": len(waiting)}
    assert {scheduler.jobs.get(one.id).priority for one in waiting} == {Priority.LOW}
    assert ratchet.json("jobs", "set-priority", "low", "--target", target, "--yes") == {"changed": 0}


@pytest.mark.parametrize(
    ("verb", "job", "message"),
    [
        ("cancel", "succeeded", "(SUCCEEDED) has ended"),
        ("pause", "succeeded", "(SUCCEEDED) cannot be paused now"),
        ("resume", "pending", "(PENDING) is not paused"),
        ("retry", "pending", "(PENDING) is not FAILED"),
    ],
)
def test_a_verb_that_cannot_be_done_is_an_error(
    ratchet: CommandLine, world: World, verb: str, job: str, message: str
) -> None:
    """Exit code 1, the job and its state in the message, on stderr."""
    result = ratchet("jobs", verb, getattr(world, job), code=1)
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_what_can_be_done_is_done_although_another_is_refused(
    ratchet: CommandLine, world: World, scheduler: Scheduler
) -> None:
    """One bad id among good ones does not undo the good; machines see both."""
    found = ratchet.json("jobs", "cancel", world.succeeded, world.pending, code=1)
    assert found["canceled"] == [str(world.pending)]
    assert str(world.succeeded) in found["refused"][0]
    assert statuses(scheduler, world.pending) == [JobStatus.CANCELED]


@pytest.mark.parametrize("verb", ["show", "explain", "logs", "cancel", "pause", "resume", "retry", "delete"])
def test_an_unknown_job_is_exit_code_3(ratchet: CommandLine, world: World, verb: str) -> None:
    """A job that does not exist is told apart from other errors; nothing is on stdout."""
    result = ratchet("jobs", verb, uuid4(), code=3)
    assert "there is no job" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("verb", ["show", "cancel", "logs"])
def test_an_id_that_is_none_is_wrong_usage(ratchet: CommandLine, world: World, verb: str) -> None:
    """A malformed id is exit code 2, and the message says what an id looks like."""
    assert "ids are UUIDs" in unframed(ratchet("jobs", verb, "nonsense", code=2).stderr)


def unframed(text: str) -> str:
    """What stands in the frame that usage errors are printed in, in one line."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("verb", ["show", "explain", "logs", "pause"])
def test_an_id_may_be_abbreviated(
    ratchet: CommandLine, world: World, scheduler: Scheduler, verb: str
) -> None:
    """The beginning of an id is enough, with or without dashes, if no other id begins so; archived jobs count."""
    whole = str(world.pending)
    ratchet("jobs", verb, whole[:-2])
    ratchet("jobs", verb, whole.replace("-", "")[:-3])
    others = [str(job.id) for job in scheduler.jobs.find() if str(job.id) != whole]
    shared = next(whole[:n] for n in range(36, 3, -1) if any(other.startswith(whole[:n]) for other in others))
    assert "give more of it" in unframed(ratchet("jobs", verb, shared, code=2).stderr)
    assert "no job whose id begins with 00000" in ratchet("jobs", verb, "00000", code=3).stderr
    first = min(job.id for job in scheduler.jobs.find())
    assert "no job whose id begins" in ratchet("jobs", verb, f"{first.int - 2**90:032x}"[:20], code=3).stderr


def test_bulk_retry_and_cancel(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """A filter changes all jobs that match, more than fit in one piece; a limit is kept."""
    for handle in scheduler.submit_all(
        [scheduler.enqueue(errands.greet, str(n)).with_tags("mass") for n in range(600)]
    ):
        assert handle.status() is JobStatus.PENDING
        break
    assert ratchet.json("jobs", "cancel", "--tag", "mass", "--limit", 10, "--yes") == {"canceled": 10}
    assert "canceled 590 jobs" in ratchet("jobs", "cancel", "--tag", "mass", "--yes").stdout
    assert scheduler.jobs.counts()[JobStatus.CANCELED] == 600
    assert ratchet.json("jobs", "cancel", "--tag", "mass") == {"canceled": 0}


def test_bulk_retry_takes_failed_jobs_only(ratchet: CommandLine, world: World, scheduler: Scheduler) -> None:
    """A filter that matches other states too retries the failed ones."""
    assert ratchet.json("jobs", "retry", "--tag", "hello") == {"retried": 0}
    assert ratchet.json("jobs", "retry", "--since", "1h", "--yes") == {"retried": 1}
    assert statuses(scheduler, world.failed, world.canceled) == [JobStatus.PENDING, JobStatus.CANCELED]


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_bulk_verbs_refuse_an_empty_filter(ratchet: CommandLine, world: World, verb: str) -> None:
    """Nothing named means everything: refused."""
    assert "would match every job" in ratchet("jobs", verb, code=1).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "delete", "--tag", "billing"),
        ("jobs", "cancel", "--tag", "hello", "--status", "PENDING"),
        ("jobs", "retry", "--tag", "billing"),
        ("dlq", "retry", "--all"),
    ],
    ids=" ".join,
)
def test_what_destroys_needs_yes_where_nobody_can_be_asked(
    ratchet: CommandLine, world: World, scheduler: Scheduler, words: tuple[str, ...]
) -> None:
    """Without a terminal and with --json: refused, with the way out, and nothing has changed. --dry-run asks nothing."""
    scheduler.schedule(timedelta(hours=1), errands.greet, "eve").with_tags("hello").submit()
    before = scheduler.jobs.counts()
    refused = ratchet(*words, code=1).stderr
    assert "without a terminal nobody can be asked" in refused
    assert "--yes" in refused
    assert "with --json" in ratchet(*words, "--json", code=1).stderr
    [(would, count)] = ratchet.json(*words, "--dry-run").items()
    assert would.startswith("would_")
    assert count == 1
    assert scheduler.jobs.counts() == before
    assert list(ratchet.json(*words, "--yes").values()) == [1]
    assert scheduler.jobs.counts() != before


def test_delete_by_filter(ratchet: CommandLine, world: World, scheduler: Scheduler) -> None:
    """All that match, more than fit in one piece, but for the limit; a state that is not there deletes nothing."""
    scheduler.submit_all([scheduler.enqueue(errands.greet, str(n)).with_tags("mass") for n in range(300)])
    assert ratchet.json("jobs", "delete", "--tag", "mass", "--status", "RUNNING", "--yes") == {"deleted": 0}
    assert ratchet.json("jobs", "delete", "--tag", "mass", "--limit", 10, "--yes") == {"deleted": 10}
    assert "deleted 290 jobs" in ratchet("jobs", "delete", "--tag", "mass", "--yes").stdout
    assert scheduler.jobs.count() == 5


def test_more_than_a_page_is_read_in_pages(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """A limit beyond 1000 is kept, and the cursor goes on behind it."""
    scheduler.enqueue_many(errands.greet, [(str(n),) for n in range(1105)])
    found = ratchet.json("jobs", "list", "--limit", 1100)
    assert len(found["jobs"]) == 1100
    rest = ratchet.json("jobs", "list", "--cursor", found["next_cursor"])
    assert len({job["id"] for job in found["jobs"] + rest["jobs"]}) == 1105
    assert len(ratchet.json("jobs", "list", "--limit", 5000)["jobs"]) == 1105


@pytest.mark.parametrize("noun", ["jobs", "dlq"])
def test_the_printed_cursor_can_be_pasted(ratchet: CommandLine, scheduler: Scheduler, noun: str) -> None:
    """What stands behind ``more:`` are the words of the next command, on one line, however narrow the output is."""
    scheduler.submit_all([scheduler.enqueue(errands.fail, f"broken {n}") for n in range(3)])
    with scheduler:
        until(lambda: scheduler.jobs.counts().get(JobStatus.FAILED, 0) == 3)
    [more] = [line for line in ratchet(noun, "list", "--limit", 2).stdout.splitlines() if "more:" in line]
    words = shlex.split(more.partition("more:")[2])
    assert len(words) == 2
    found = ratchet.json(noun, "list", *words)
    assert len(found["jobs" if noun == "jobs" else "dead_letters"]) == 1


def test_counts_obey_every_filter(ratchet: CommandLine, world: World) -> None:
    """--counts counts what the list would show."""
    everything = ratchet.json("jobs", "list", "--counts")
    assert sum(everything.values()) == 5
    for words in (
        ["--tag", "hello"],
        ["--status", "FAILED"],
        ["--target", "fail"],
        ["--since", "1h", "--error", "broken"],
    ):
        counted = ratchet.json("jobs", "list", "--counts", *words)
        assert sum(counted.values()) == len(ratchet.json("jobs", "list", *words)["jobs"]) == 1, words


def test_a_bare_function_name_is_a_target(ratchet: CommandLine, world: World) -> None:
    """``--target greet`` means the functions of that name; one that nobody knows is wrong usage, with those that exist."""
    assert len(ratchet.json("jobs", "list", "--target", "greet")["jobs"]) == 4
    refused = unframed(ratchet("jobs", "list", "--target", "gret", code=2).stderr)
    assert "no job of late has the target 'gret'" in refused
    assert "errands:greet" in refused.replace(" ", "")
    assert ratchet.json("jobs", "list", "--target", "shop.jobs:charge")["jobs"] == []


def test_a_bare_name_is_found_behind_newer_jobs(
    ratchet: CommandLine, world: World, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed last night is known by its bare name, however many jobs of other functions came after it."""
    scheduler.enqueue_many(errands.greet, [(str(number),) for number in range(5)])
    monkeypatch.setattr("ratchet.cli.parameters.PAGE", 3)
    assert "would retry 1 job" in ratchet("dlq", "retry", "--target", "fail", "--dry-run").stdout


def test_tables_are_as_wide_as_columns_says(
    ratchet: CommandLine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe too; without COLUMNS nothing is cut."""
    assert max(map(len, ratchet("jobs", "list").stdout.splitlines())) > 100
    monkeypatch.setenv("COLUMNS", "70")
    assert max(map(len, ratchet("jobs", "list").stdout.splitlines())) <= 70


def test_times_name_their_zone(ratchet: CommandLine, world: World) -> None:
    """A time that is read in a log of another machine is still that time."""
    shown = ratchet("jobs", "show", world.succeeded).stdout
    assert re.search(r"created\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d", shown)


def test_ids_and_a_filter_exclude_each_other(ratchet: CommandLine, world: World) -> None:
    """It would not be clear what is meant."""
    assert "not both" in ratchet("jobs", "cancel", world.pending, "--tag", "x", code=2).stderr


# --- dead letters


def test_dead_letters_are_listed_with_their_alerts(ratchet: CommandLine, world: World) -> None:
    """Who failed, why, and that somebody was alerted; without credentials."""
    assert "broken" in ratchet("dlq", "list").stdout
    letters = ratchet.json("dlq", "list")["dead_letters"]
    assert [letter["job_id"] for letter in letters] == [str(world.failed)]
    assert len(letters[0]["alerts"]) == 1
    assert ratchet.json("dlq", "list", "--tag", "hello")["dead_letters"] == []
    alerts = ratchet.json("dlq", "alerts")["alerts"]
    assert [alert["job_id"] for alert in alerts] == [str(world.failed)]
    assert str(world.failed) in ratchet("dlq", "alerts", "--since", "1h").stdout


@pytest.mark.parametrize(
    "words", [["--all", "--yes"], ["--tag", "billing", "--yes"], ["--error", "broken", "--yes"]]
)
def test_dead_letters_are_retried(
    ratchet: CommandLine, world: World, scheduler: Scheduler, words: list[str]
) -> None:
    """All of them, or those that match."""
    assert ratchet.json("dlq", "retry", *words) == {"retried": 1}
    assert statuses(scheduler, world.failed) == [JobStatus.PENDING]


def test_a_dead_letter_is_retried_by_id(ratchet: CommandLine, world: World, scheduler: Scheduler) -> None:
    """One of them, named."""
    ratchet("dlq", "retry", world.failed)
    assert statuses(scheduler, world.failed) == [JobStatus.PENDING]
    assert "no dead letters" in ratchet("dlq", "list").stdout


@pytest.mark.parametrize("words", [[], ["--all", "--tag", "x"]])
def test_retrying_dead_letters_needs_one_way_to_name_them(
    ratchet: CommandLine, world: World, words: list[str]
) -> None:
    """Neither nothing nor two at once."""
    assert "one of the three" in ratchet("dlq", "retry", *words, code=2).stderr


# --- submitting by name


def test_submit_stores_a_job_without_its_code(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """With the URL alone: the worker's policy decides, and its node runs it."""
    words = ("--args", '["ann"]', "--queue", "emails", "--priority", "high")
    found = ratchet.json("jobs", "submit", "tests.unit.cli.errands:greet", *words)
    job = scheduler.jobs.get(UUID(found["id"]))
    assert (job.target, job.args, job.queue, job.priority.name) == (
        "tests.unit.cli.errands:greet",
        ("ann",),
        "emails",
        "HIGH",
    )
    with scheduler:
        assert scheduler.handle(job.id).result(timeout=20) == errands.greet("ann")
    printed = ratchet("jobs", "submit", "no.such.place:run", "--kwargs", '{"a": [1, null]}').stdout.strip()
    other = scheduler.jobs.get(UUID(printed))
    assert (other.target, other.args, other.kwargs) == ("no.such.place:run", (), {"a": [1, None]})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shop.jobs:charge", "--args", "42"], "'42' is not a list"),
        (["shop.jobs:charge", "--args", "[42"], "is not JSON"),
        (["shop.jobs:charge", "--kwargs", "[]"], "'[]' is not an object"),
        (["shop.jobs:"], "is not the name of a job"),
        (["shop.jobs:__init__"], "is not the name of a job"),
        (["shop.jobs:charge", "--priority", "top"], "'top' is none of"),
    ],
)
def test_submit_refuses_what_it_cannot_store(
    ratchet: CommandLine, scheduler: Scheduler, words: list[str], message: str
) -> None:
    """Exit code 2, the option's name and the right form; nothing is stored."""
    said = " ".join(ratchet("jobs", "submit", *words, code=2).output.replace("│", " ").split())
    assert message in said
    assert not list(scheduler.jobs.find())


def test_dead_letters_by_cause_and_their_end(ratchet: CommandLine, world: World) -> None:
    """Counted by target and error; purged by a filter or all of them, never by accident, and only counted with --dry-run."""
    (group,) = ratchet.json("dlq", "summary")["groups"]
    assert (group["count"], group["sample"]) == (1, str(world.failed))
    assert "errands:fail" in ratchet("dlq", "summary").stdout
    ratchet("dlq", "purge", code=2)
    assert ratchet.json("dlq", "purge", "--tag", "nothing", "--yes") == {"deleted": 0}
    assert ratchet.json("dlq", "purge", "--tag", "billing", "--dry-run") == {"would_delete": 1}
    assert ratchet.json("dlq", "purge", "--all", "--yes") == {"deleted": 1}
    assert ratchet.json("dlq", "summary")["groups"] == []


def test_ids_in_filters_may_be_abbreviated(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """The parent, the batch, the replacement and the node of jobs: as much of each id as no other has."""
    chain = scheduler.enqueue(errands.greet, "ann").then(errands.greet, "bob").submit()
    batch = scheduler.enqueue_batch("all").for_each(["cid"], errands.greet).submit()
    old = scheduler.schedule(timedelta(hours=1), errands.greet, "dot").submit()
    new = scheduler.replace(old.id, errands.greet, "eve")
    assert new is not None

    def found(*words: str) -> set[str]:
        return {job["id"] for job in ratchet.json("jobs", "list", *words)["jobs"]}

    parent = str(chain.id)
    assert found("--parent", parent[:23]) == found("--parent", parent) != set()
    assert found("--batch", str(batch.id)[:23]) == found("--batch", str(batch.id)) != set()
    assert found("--superseded-by", str(new.id)[:23]) == {str(old.id)}
    with scheduler:
        for handle in (chain.last, new, *batch.jobs()):
            scheduler.handle(handle.id).wait(timeout=30)  # what runs while it is listed would change the list
        (node,) = scheduler.nodes.list()
        assert found("--node", node.node_id[-12:]) == found("--node", node.node_id) != set()
    assert "whole id" in ratchet("jobs", "list", "--batch", "ffffffff", code=3).stderr
    assert "begins with" in ratchet("jobs", "list", "--parent", "ffffffff", code=3).stderr
