"""What a node knows: the modules it imports, whose a function is, and jobs submitted by name."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from ratchet import (
    ConfigurationError,
    DeclaredTwiceWarning,
    InvalidTarget,
    JobStatus,
    Priority,
    Scheduler,
    TargetNotAllowed,
)
from ratchet.testing import ManualClock, ManualScheduler, manual_scheduler

Package = Callable[[dict[str, str]], str]
_numbers = itertools.count()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """Writes the files of a package, for this test only; its name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def write(files: dict[str, str]) -> str:
        name = f"deployed_{next(_numbers)}"
        made.append(name)
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        for path, code in files.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code.replace("PACKAGE", name))
        return name

    yield write
    for module in [one for one in sys.modules if one.partition(".")[0] in made]:
        del sys.modules[module]


APP = "from ratchet.testing import manual_scheduler\nscheduler = manual_scheduler(allow=['nothing.else'])\n"
JOBS = "from PACKAGE.app import scheduler\n@scheduler.job(max_retries=2)\ndef charge(number): return number + 1\n"


class TestImports:
    def test_a_node_imports_what_it_is_told_to_before_it_starts(self, package: Package) -> None:
        """Nothing is imported when the scheduler is made; what the modules declare is known when the node starts."""
        name = package({"mail.py": "loaded = True\n"})
        scheduler = Scheduler("sqlite:///:memory:", allow=[name], imports=[f"{name}.mail"])
        assert f"{name}.mail" not in sys.modules
        with scheduler:
            assert f"{name}.mail" in sys.modules
        scheduler.close()

    def test_a_declaration_in_an_imported_module_is_enough_to_start(self, package: Package) -> None:
        """A node without ``allow`` whose jobs are all declared elsewhere."""
        name = package(
            {
                "app.py": "from ratchet import Scheduler\n"
                "scheduler = Scheduler('sqlite:///:memory:', imports=['PACKAGE.jobs'])\n",
                "jobs.py": JOBS,
            }
        )
        app = __import__(f"{name}.app").app
        with app.scheduler:
            assert app.scheduler.enqueue_by_name(f"{name}.jobs:charge", 1).submit().result(timeout=10) == 2
        app.scheduler.close()

    def test_a_manual_scheduler_imports_them_too(self, package: Package) -> None:
        """Before its first drain."""
        name = package({"mail.py": ""})
        scheduler = manual_scheduler(imports=[f"{name}.mail"])
        scheduler.drain()
        assert f"{name}.mail" in sys.modules

    @pytest.mark.parametrize(
        ("code", "module", "message"),
        [
            (
                None,
                "mial",
                r"'deployed_\d+.mial' is to be imported, but there is no module 'deployed_\d+.mial'",
            ),
            (
                "import nowhere",
                "mail",
                r"importing the module '.*mail' raised ModuleNotFoundError: .*'nowhere'",
            ),
            ("raise SystemExit(3)", "mail", r"importing the module '.*mail' raised SystemExit: 3"),
            ("1 / 0", "mail", r"raised ZeroDivisionError.*python -c 'import deployed_\d+.mail'"),
        ],
        ids=["missing", "needs_another", "exit", "raises"],
    )
    def test_a_module_that_cannot_be_imported(
        self, package: Package, code: str | None, module: str, message: str
    ) -> None:
        """The start fails with the name of the module and the reason; the scheduler is no node then."""
        name = package({} if code is None else {"mail.py": code})
        scheduler = Scheduler("sqlite:///:memory:", allow=["x"], imports=[f"{name}.{module}"])
        with pytest.raises(ConfigurationError, match=message):
            scheduler.start()
        assert not scheduler.running
        scheduler.close()

    @pytest.mark.parametrize("wrong", ["shop.jobs", ["shop/jobs.py"], ["shop..jobs"], [3], [""]])
    def test_what_is_no_list_of_modules(self, wrong: object) -> None:
        """Refused when the scheduler is made, not when it starts."""
        with pytest.raises(ConfigurationError, match=r"imports=\['shop.jobs'\]|not the name of a module"):
            Scheduler("sqlite:///:memory:", imports=wrong)  # type: ignore[arg-type]


class TestDiscover:
    def test_every_module_named_jobs_below_a_package(self, package: Package) -> None:
        """At every depth, as module or as package; nothing else is imported."""
        name = package(
            {
                "app.py": APP,
                "jobs.py": JOBS,
                "orders/__init__.py": "",
                "orders/jobs.py": JOBS,
                "orders/eu/__init__.py": "",
                "orders/eu/jobs/__init__.py": JOBS,
                "orders/views.py": "raise AssertionError('nobody asked for this')",
                "myjobs.py": "raise AssertionError('nobody asked for this')",
                "quiet/__init__.py": "raise AssertionError('there are no jobs in it')",
                "quiet/views.py": "",
            }
        )
        scheduler: ManualScheduler = __import__(f"{name}.app").app.scheduler
        found = scheduler.discover(name)
        assert found == [f"{name}.jobs", f"{name}.orders.eu.jobs", f"{name}.orders.jobs"]
        assert {f"{module}:charge" for module in found} <= scheduler._core.parts.registry.declared_names
        assert scheduler.discover(f"{name}.orders") == found[1:]

    def test_errors_name_the_module(self, package: Package) -> None:
        """No such package, a module where a package is meant, a module of jobs that raises."""
        name = package({"app.py": APP, "orders/__init__.py": "", "orders/jobs.py": "1 / 0"})
        scheduler = manual_scheduler()
        with pytest.raises(ConfigurationError, match="no module 'no_such_shop'"):
            scheduler.discover("no_such_shop")
        with pytest.raises(ConfigurationError, match=r"app' is a module and not a package"):
            scheduler.discover(f"{name}.app")
        with pytest.raises(
            ConfigurationError, match=r"importing the module '.*orders.jobs' raised ZeroDivision"
        ):
            scheduler.discover(name)
        with pytest.raises(ConfigurationError, match="not the name of a module"):
            scheduler.discover("shop/jobs")


class TestWhoseFunctionItIs:
    def test_the_second_declaration_warns_and_steals_nothing(self) -> None:
        """``.enqueue`` and ``.options`` stay with the first; the second takes it with ``enqueue(f)``."""
        first, second = manual_scheduler(allow=["nothing"]), manual_scheduler(allow=["nothing"])

        @first.job(max_retries=1)
        def add(number: int) -> int:
            return number + 1

        with pytest.warns(
            DeclaredTwiceWarning, match="belongs to the scheduler that declared it first"
        ) as seen:
            assert second.job(max_retries=5, name="second.add")(add) is add
        assert seen[0].filename == __file__
        add.enqueue(1).submit()
        second.enqueue(add, 2).submit()
        (here,), (there,) = first.enqueued(), second.enqueued()
        assert (here.args, here.max_retries, add.options.max_retries) == ((1,), 1, 1)
        assert (there.args, there.max_retries, there.target) == ((2,), 5, "second.add")
        assert (first.drain(), second.drain()) == (1, 1)
        assert second.handle(there.id).result() == 3

    def test_every_way_to_submit_uses_the_options_declared_there(self) -> None:
        """``enqueue_now`` and ``enqueue_many`` of the second use what was declared on the second, as ``enqueue`` does."""
        first, second = manual_scheduler(allow=["nothing"]), manual_scheduler(allow=["nothing"])

        def add(number: int) -> int:
            return number + 1

        first.job(max_retries=1)(add)
        with pytest.warns(DeclaredTwiceWarning):
            second.job(max_retries=5)(add)
        handles = [
            second.enqueue_now(add, 1),
            *second.enqueue_many(add, [(2,)]),
            second.enqueue(add, 3).submit(),
        ]
        assert [handle.job().max_retries for handle in handles] == [5, 5, 5]
        assert first.enqueue_now(add, 1).job().max_retries == 1

    def test_the_same_scheduler_may_declare_again(self) -> None:
        """No warning: the newer declaration counts."""
        scheduler = manual_scheduler()

        def add(number: int) -> int:
            return number + 1

        scheduler.job(max_retries=1)(add)
        assert scheduler.job(max_retries=2)(add).options.max_retries == 2

    def test_a_scheduler_that_was_closed_gives_its_functions_away(self) -> None:
        """An application factory that runs for each test: ``.enqueue`` goes to the scheduler of the day, without a warning."""

        def add(number: int) -> int:
            return number + 1

        first, second = manual_scheduler(allow=["nothing"]), manual_scheduler(allow=["nothing"])
        first.job(max_retries=1)(add)
        first.close()
        declared = second.job(max_retries=2)(add)
        declared.enqueue(1).submit()
        assert [(job.max_retries, job.args) for job in second.enqueued()] == [(2, (1,))]
        first.enqueue(add, 2).submit()
        assert [(job.max_retries, job.args) for job in first.enqueued()] == [(1, (2,))]

    def test_a_declaration_does_not_allow_a_function_everywhere(self) -> None:
        """Another scheduler neither submits nor runs it, unless it allows or declares it."""
        first, strict = manual_scheduler(), manual_scheduler(allow=["nothing"])
        first.job(module_level)
        with pytest.raises(
            TargetNotAllowed, match=r"declared on another scheduler.*add 'tests.unit.api.test_deploys'"
        ):
            strict.enqueue(module_level, 1).submit()
        lax = manual_scheduler(allow=[__name__])
        handle = lax.enqueue(module_level, 1).submit()
        lax.drain()
        assert handle.result() == 2

    def test_recurring_declares_what_only_another_scheduler_knows(self) -> None:
        """The timetable is for the scheduler that was asked, which runs it with the same options; `.enqueue` stays."""
        clock = ManualClock()
        first, second = manual_scheduler(), manual_scheduler(allow=["nothing"], clock=clock)

        @first.job(max_retries=3)
        def tick() -> None: ...

        second.recurring("* * * * *", name="tick")(tick)
        second.drain()
        clock.advance(timedelta(minutes=1))
        assert second.drain() == 1
        assert [job.max_retries for job in second.enqueued()] == [3]
        tick.enqueue().submit()
        assert len(first.enqueued()) == 1


def module_level(number: int) -> int:
    return number + 1


class TestByName:
    def test_nothing_is_imported(self, package: Package) -> None:
        """The job waits until a worker that has the module runs it, with all that a builder can say."""
        name = package({"jobs.py": "async def charge(number, *, region): return [number, region]\n"})
        scheduler = manual_scheduler(allow=[name])
        handle = (
            scheduler.enqueue_by_name(f"{name}.jobs:charge", 42, region="eu")
            .with_priority(Priority.HIGH)
            .with_queue("default")
            .submit()
        )
        assert f"{name}.jobs" not in sys.modules
        job = handle.job()
        assert (job.target, job.args, job.kwargs) == (f"{name}.jobs:charge", (42,), {"region": "eu"})
        assert (job.priority, job.status) == (Priority.HIGH, JobStatus.PENDING)
        scheduler.drain()
        assert handle.result() == [42, "eu"]

    def test_a_name_that_is_declared_here_brings_its_defaults(self) -> None:
        """Also an alias; arguments are checked as always."""
        scheduler = manual_scheduler(allow=["nothing"])
        scheduler.job(name="billing.add", aliases=["old:add"], max_retries=4)(one_more)
        for name in ("billing.add", "old:add"):
            handle = scheduler.enqueue_by_name(name, 1).submit()
            assert (handle.job().target, handle.job().max_retries) == ("billing.add", 4)

    @pytest.mark.parametrize("name", ["shop.jobs:charge", "billing.charge", "shopping:charge"])
    def test_a_name_that_nothing_allows(self, name: str) -> None:
        """Refused at once, with what to add."""
        scheduler = manual_scheduler(allow=["shop.mail"])
        with pytest.raises(
            TargetNotAllowed, match=rf"no job {name} is declared here.*to allow.*import the module"
        ):
            scheduler.enqueue_by_name(name, 1)

    @pytest.mark.parametrize(
        "name", ["", "  ", "shop.jobs:", ":charge", "shop jobs:charge", "a:b:c", "a:__class__", 3]
    )
    def test_what_is_no_name(self, name: str) -> None:
        """Refused with the right form, whatever the policy allows."""
        with pytest.raises(InvalidTarget, match=r"is not the name of a job; write .*'shop.jobs:charge'"):
            manual_scheduler().enqueue_by_name(name)
        with pytest.raises(InvalidTarget, match="longer than 500"):
            manual_scheduler().enqueue_by_name("a" * 501)

    def test_awaited(self) -> None:
        """The same builder, with a submit that is awaited."""
        scheduler = manual_scheduler()

        async def submit() -> str:
            handle = await scheduler.aio.enqueue_by_name("shop.jobs:charge", 1).submit()
            return (await handle.aio.job()).target

        assert asyncio.run(submit()) == "shop.jobs:charge"

    def test_a_builder_that_is_dropped_says_the_name(self) -> None:
        """It warns like every other, with the target as it was written."""
        from ratchet import UnsubmittedJobWarning

        with pytest.warns(UnsubmittedJobWarning, match="shop.jobs:charge"):
            manual_scheduler().enqueue_by_name("shop.jobs:charge")


def one_more(number: int) -> int:
    return number + 1
