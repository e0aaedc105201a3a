"""``ratchet jobs`` and ``ratchet dlq``: what they show, what they change, how they refuse."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler
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
        (["--since", "2000-01-01T00:00", "--until", "2001-01-01T00:00:00+00:00"], set()),
    ],
)
def test_list_filters(ratchet: CommandLine, world: World, words: list[str], expected: set[str]) -> None:
    """Each option restricts the list, and they combine with AND."""
    found = {job["id"] for job in ratchet.json("jobs", "list", *words)["jobs"]}
    assert found == {str(getattr(world, name)) for name in expected}


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
    """Nothing keeps it: only a node is missing."""
    handle = scheduler.enqueue_now(errands.greet, "eve")
    assert "nothing keeps" in ratchet("jobs", "explain", handle.id).stdout
    assert ratchet.json("jobs", "explain", handle.id)["reasons"] == []


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
    ratchet("jobs", "delete", world.succeeded)
    assert "there is no job" in ratchet("jobs", "show", world.succeeded, code=3).stderr


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
    """A malformed or abbreviated id is exit code 2, and the message says what an id looks like."""
    for word in ("nonsense", str(world.failed)[:8]):
        assert "ids are UUIDs" in " ".join(
            ratchet("jobs", verb, word, code=2).stderr.replace("│", " ").split()
        )


def test_bulk_retry_and_cancel(ratchet: CommandLine, scheduler: Scheduler) -> None:
    """A filter changes all jobs that match, more than fit in one piece; a limit is kept."""
    for handle in scheduler.submit_all(
        [scheduler.enqueue(errands.greet, str(n)).with_tags("mass") for n in range(600)]
    ):
        assert handle.status() is JobStatus.PENDING
        break
    assert ratchet.json("jobs", "cancel", "--tag", "mass", "--limit", 10) == {"canceled": 10}
    assert "canceled 590 jobs" in ratchet("jobs", "cancel", "--tag", "mass", "--yes").stdout
    assert scheduler.jobs.counts()[JobStatus.CANCELED] == 600
    assert ratchet.json("jobs", "cancel", "--tag", "mass") == {"canceled": 0}


def test_bulk_retry_takes_failed_jobs_only(ratchet: CommandLine, world: World, scheduler: Scheduler) -> None:
    """A filter that matches other states too retries the failed ones."""
    assert ratchet.json("jobs", "retry", "--tag", "hello") == {"retried": 0}
    assert ratchet.json("jobs", "retry", "--since", "1h") == {"retried": 1}
    assert statuses(scheduler, world.failed, world.canceled) == [JobStatus.PENDING, JobStatus.CANCELED]


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_bulk_verbs_refuse_an_empty_filter(ratchet: CommandLine, world: World, verb: str) -> None:
    """Nothing named means everything: refused."""
    assert "would match every job" in ratchet("jobs", verb, code=1).stderr


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


@pytest.mark.parametrize("words", [["--all"], ["--tag", "billing"], ["--error", "broken", "--yes"]])
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
