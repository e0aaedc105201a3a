"""Nonsense, wherever an application can pass it, is refused with an error that says so: no raw error of Python's insides."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import ratchet
from ratchet import JobFilter, Options, RatchetError, RetryLater, Scheduler, UnsubmittedJobWarning
from ratchet.stores import open_store
from ratchet.testing import ManualScheduler, manual_scheduler

NONSENSE: list[Any] = [
    None, object(), "", "\0", "\ud800", "a" * 10_000, "America", "every 99999999d", b"x", True, -1, 10**30,
    float("nan"), float("inf"), [], {}, {1: 2}, [None], [[]], (1,), lambda: 1, timedelta.max, timedelta.min,
    datetime(9999, 12, 31), datetime(2020, 1, 1), datetime.max.replace(tzinfo=UTC),
]  # fmt: skip
#: A clear refusal. UnicodeError is a ValueError, but one of a codec.
REFUSALS = (RatchetError, TypeError, ValueError)
#: Verbs of the test tools that fail by assertion, those that run or wait, and what makes a table of a method pointless.
LEFT_OUT = {
    "run",
    "start",
    "stop",
    "close",
    "drain",
    "advance",
    "worker",
    "wait",
    "result",
    "assert_enqueued",
}
LEFT_OUT |= {"assert_not_enqueued", "assert_no_jobs", "on"}

target = json.dumps
GOOD: dict[str, Any] = {
    "expression": "every 5m", "name": "n", "key": "k", "items": [1], "where": JobFilter(tags=["x"]), "delay": 5,
    "queue": "q", "moment": datetime(2026, 1, 1, tzinfo=UTC), "when": datetime(2026, 1, 1, tzinfo=UTC),
}  # fmt: skip


def refuses(what: str, take: Callable[[Any], object]) -> None:
    """*take* accepts a value or refuses it clearly."""
    for value in NONSENSE:
        try:
            answer = take(value)
            if inspect.iscoroutine(answer):
                answer.close()
        except UnicodeError as error:
            raise AssertionError(f"{what} with {value!r:.60}: {error!r}") from error
        except REFUSALS:
            pass
        except Exception as error:
            raise AssertionError(f"{what} with {value!r:.60}: {error!r}") from error


def parameters_of(thing: Any) -> list[tuple[str, inspect.Parameter, list[inspect.Parameter]]]:
    """The public methods of *thing*, each with each of its parameters in turn."""
    found = []
    for name, method in inspect.getmembers(thing, callable):
        if name.startswith("_") or name in LEFT_OUT:
            continue
        try:
            all_of_it = list(inspect.signature(method).parameters.values())
        except (TypeError, ValueError):
            continue
        found += [(name, one, all_of_it) for one in all_of_it if one.kind is not one.VAR_KEYWORD]
    return found


def calling(thing: Callable[[], Any], name: str, one: inspect.Parameter, all_of_it: list[Any]) -> Any:
    """A call of the method with nonsense for one parameter and what is sensible for the others."""

    def call(value: Any) -> Any:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for other in all_of_it:
            wanted = other is one
            if other.kind is other.KEYWORD_ONLY:
                if wanted or other.default is other.empty:
                    kwargs[other.name] = value if wanted else GOOD.get(other.name, "x")
            elif wanted:
                args.append(value)
            elif other.kind in (other.POSITIONAL_ONLY, other.POSITIONAL_OR_KEYWORD):
                if other.default is other.empty:
                    args.append(GOOD.get(other.name, target))
                elif all_of_it.index(other) < all_of_it.index(one):
                    args.append(other.default)
        return getattr(thing(), name)(*args, **kwargs)

    return call


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsubmittedJobWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield


@pytest.fixture(params=["memory", "sqlite"])
def scheduler(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ManualScheduler]:
    if request.param == "memory":
        made = manual_scheduler(allow=["json"])
    else:
        store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}", Options())
        store.migrate()
        made = ManualScheduler(store=store, allow=["json"])
    GOOD["job_id"] = made.enqueue_now(target, 1).id
    yield made
    made.close()


@pytest.mark.parametrize(
    "part",
    [
        "builder", "handle", "scheduler", "jobs", "dead_letters", "schedules", "queues", "limits", "breakers", "nodes",
        "batches", "storage",
    ],
)  # fmt: skip
def test_every_verb(scheduler: ManualScheduler, part: str) -> None:
    """Each parameter of each public method, with each kind of nonsense."""
    handle = scheduler.enqueue_now(target, 1)
    things: dict[str, Callable[[], Any]] = {
        "builder": lambda: scheduler.enqueue(target, 1),
        "handle": lambda: handle,
        "scheduler": lambda: scheduler,
    }
    thing = things.get(part, lambda: getattr(scheduler, part))
    table = parameters_of(thing())
    assert table
    for name, one, all_of_it in table:
        refuses(f"{part}.{name}({one.name})", calling(thing, name, one, all_of_it))


@pytest.mark.parametrize("criterion", list(inspect.signature(JobFilter).parameters))
def test_every_criterion_of_a_filter(scheduler: ManualScheduler, criterion: str) -> None:
    """In each verb that takes a filter; the answer is the same on every store: an error, or none."""

    def search(value: Any) -> None:
        where = JobFilter(**{criterion: value})
        scheduler.jobs.find(where)
        scheduler.jobs.count(where)
        scheduler.dead_letters.find(where)

    refuses(f"JobFilter({criterion})", search)


@pytest.mark.parametrize("kind", ["statuses", "types", "priorities", "tags", "targets"])
def test_text_is_no_list(scheduler: ManualScheduler, kind: str) -> None:
    """A word where a list is meant would be read letter by letter."""
    with pytest.raises(RatchetError, match=f"{kind} takes a list"):
        scheduler.jobs.find(JobFilter(**{kind: "FAILED"}))


@pytest.mark.parametrize("option", list(inspect.signature(Options).parameters))
def test_every_option(option: str) -> None:
    """An option of the wrong type, or beyond its limits, is refused by name."""
    refuses(f"Options({option})", lambda value: Options(**{option: value}))


@pytest.mark.parametrize(
    "parameter", [name for name in inspect.signature(Scheduler).parameters if name != "url"]
)
def test_every_part_of_a_scheduler(parameter: str) -> None:
    """Nonsense for a part is refused where it is given, or when it is used, and always clearly."""
    refuses(
        f"Scheduler({parameter})",
        lambda value: Scheduler("sqlite:///:memory:", **{parameter: value}).close(),
    )


def test_every_part_of_a_declaration() -> None:
    """``@scheduler.job`` and ``@scheduler.recurring``."""
    scheduler = manual_scheduler(allow=["json"])

    def declared(name: str, parameter: str) -> Callable[[Any], object]:
        def declare(value: Any) -> object:
            def job() -> None: ...

            given = {} if name == "job" or parameter == "expression" else {"expression": "every 5m"}
            return getattr(scheduler, name)(**given, **{parameter: value})(job)

        return declare

    for name in ("job", "recurring"):
        for parameter, one in inspect.signature(getattr(scheduler, name)).parameters.items():
            if parameter != "function" and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
                refuses(f"{name}({parameter})", declared(name, parameter))
    scheduler.close()


def test_retry_later() -> None:
    """A delay that is none."""
    refuses("RetryLater", RetryLater)


@pytest.mark.parametrize(
    ("expression", "settings", "said"),
    [
        ("every 99999999d", {}, "never fires"),
        ("every 99999999999999999999d", {}, "is not a schedule"),
        ("0 5 * * *", {"zone": "America"}, "is not a time zone"),
        ("0 5 * * *", {"zone": "../../etc/passwd"}, "is not a time zone"),
        ("every 5m", {"jitter": timedelta.max}, "at most 366 days"),
    ],
)
def test_schedules_that_cannot_be(expression: str, settings: dict[str, Any], said: str) -> None:
    """What can never fire, or has no zone, is refused when it is made."""
    scheduler = manual_scheduler(allow=["json"])
    with pytest.raises(ratchet.InvalidJob, match=said):
        scheduler.schedule_recurring(expression, target, 1, name="n", **settings)
    scheduler.close()
