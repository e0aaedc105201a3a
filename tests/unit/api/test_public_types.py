"""The types of the surface, as a strict type checker sees them in a user's code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

GOOD = """
    from collections.abc import AsyncIterator
    from contextlib import asynccontextmanager
    from datetime import timedelta
    from typing import Any

    from starlette.applications import Starlette
    from starlette.routing import Mount

    from ratchet.contrib.starlette import lifespan
    from ratchet import dashboard
    from ratchet import (RESULT, RESULTS, BackoffPolicy, BatchContext, Condition, JobContext, JobError, JobFailed, JobFilter, JobHandle,
                         JobResult,
                         Join, Options, Priority, Scheduler, call)

    scheduler = Scheduler("sqlite:///:memory:", allow=["shop"], options=Options(concurrency=20))

    @scheduler.job(max_retries=3, backoff=BackoffPolicy.EXPONENTIAL, backoff_base=timedelta(seconds=30))
    def charge(invoice: int, *, currency: str = "EUR") -> str:
        return ""

    @scheduler.job
    async def fetch(url: str) -> bytes:
        return b""

    class Orders:
        def process(self, order: int) -> int:
            return order

        @scheduler.job(name="orders.ship")
        def ship(self, order: int) -> int:
            return order

        @scheduler.job
        async def deliver(self, order: int) -> str:
            return ""

        @classmethod
        def count(cls, order: int) -> int:
            return order

    def is_slow(result: JobResult) -> bool:
        return True

    def is_large(result: int) -> bool:
        return result > 5

    def half(batch: BatchContext) -> bool:
        return batch.success_rate > 0.5

    def report(values: list[Any]) -> None: ...
    def record(ctx: JobContext) -> None: ...
    def alert(ctx: JobContext, error: JobError) -> None: ...
    def page(ctx: JobContext, error: JobError, order: int) -> None: ...
    def keep(ctx: JobContext, order: int, *, by: str) -> None: ...
    def slower(result: JobResult, limit: float) -> bool:
        return True

    def cleanup(what: str = "all") -> None: ...
    def share(batch: BatchContext, limit: float) -> bool:
        return True

    class Watch:
        def record(self, ctx: JobContext) -> None: ...
        def alert(self, ctx: JobContext, error: JobError) -> None: ...

    def use(orders: Orders) -> None:
        text: str = scheduler.enqueue_now(charge, 42).result(timeout=1)
        data: bytes = scheduler.enqueue(fetch, "x").submit().result()
        again: str = charge.enqueue(42, currency="USD").submit().result()
        plain: str = charge(42)
        number: int = scheduler.enqueue(Orders.process, 1).submit().result()
        also: int = scheduler.enqueue(lambda: orders.process(1)).submit().result()
        shipped: int = orders.ship(1)
        value: str = scheduler.enqueue(call(charge, 1)).submit().result()
        scheduler.schedule(timedelta(hours=1), charge, 1).with_priority(Priority.HIGH).submit()
        scheduler.enqueue(charge, 1).then(charge, RESULT).when(is_slow, call(charge, 1), order=1).submit()
        scheduler.enqueue(charge, 1).on_success(record).on_failure(alert).submit()
        scheduler.enqueue(charge, 1).branch(Condition.custom(is_slow), report, [], description="slow").submit()
        scheduler.join([scheduler.enqueue(charge, 1)], Join.at_least(1)).then(report, RESULTS).submit()
        scheduler.enqueue_batch("b").for_each([1, 2], Orders().process).then_on_batch_success(report, []).submit()
        scheduler.enqueue_many(charge, [(1,), (2,)])
        scheduler.retry_jobs(JobFilter(tags=["billing"]), limit=250)
        bound: int = orders.ship.enqueue(3).submit().result()
        delivered: str = orders.deliver.enqueue(3).submit().result()
        declared: int = scheduler.enqueue(Orders.ship, 3).submit().result()
        counted: int = scheduler.enqueue_now(Orders.count, 3).result()
        scheduler.enqueue(charge, 1).on_failure(call(page, 7)).on_success(call(keep, 7, by="ann")).submit()
        scheduler.enqueue(charge, 1).when(call(slower, 1.5), charge, 2).submit()
        scheduler.enqueue(charge, 1).with_timeout(None).with_resource(None).with_tags(None, "x").submit()
        scheduler.schedule_recurring("0 2 * * *", cleanup, "x", name="n", zone="UTC", tags=["a"], timeout=5).pause()
        scheduler.schedule_recurring("0 2 * * *", cleanup, name="n").pause()
        scheduler.schedule_recurring(timedelta(hours=1), charge, 1, currency="USD").pause()
        scheduler.schedule_recurring("0 2 * * *", call(charge, 1, currency="USD"), name="n").pause()
        scheduler.schedule_recurring("0 2 * * *", Orders.process, 1, name="n").pause()
        scheduler.cancel_job("x", within=object())
        now: int = scheduler.enqueue_now(Orders.process, 1).result()
        scheduler.enqueue(Orders.process, 1).when_result(is_large, charge, 1).submit()
        scheduler.enqueue_batch("b").for_each([1], charge).then_when_batch(half, report, []).submit()
        many: list[str] = [one.result() for one in scheduler.enqueue_many(charge, [(1,), (2,)])]
        total: bytes = scheduler.join([]).then(fetch, RESULTS).submit().result()
        scheduler.enqueue(charge, 1).then(charge, 2, currency="USD").then_on_failure(Orders.process, 3).submit()
        scheduler.enqueue(charge, 1).when(is_slow, charge, 2, currency="USD").submit()
        scheduler.enqueue(charge, 1).when(is_slow, charge, RESULT, order=2, description="slow").submit()
        scheduler.enqueue(charge, 1).when_result(is_large, Orders.process, 1, order=1).submit()
        scheduler.enqueue(charge, 1).when_result(is_large, lambda: charge(1), order=1).submit()
        scheduler.enqueue(charge, 1).branch(Condition.result(is_large), cleanup, description="x").submit()
        scheduler.enqueue(charge, 1).branch(Condition.success(), call(charge, 1), order=3).submit()
        scheduler.enqueue(charge, 1).on_success(Watch.record).on_failure(Watch.alert).submit()
        scheduler.enqueue_batch("b").for_each([1], charge).then_when_success_rate(0.9, charge, 1).submit()
        scheduler.enqueue_batch("b").for_each([1], charge).then_when_failure_count(3, Orders.process, 1).submit()
        scheduler.enqueue_batch("b").for_each([1], charge).then_when_batch(call(share, 0.5), charge, 1).submit()
        scheduler.enqueue_batch("b").for_each([1], charge).on_progress(half).then_on_batch_failure(cleanup).submit()

    @scheduler.on(JobFailed)
    def failed(event: JobFailed) -> None: ...

    @asynccontextmanager
    async def stateless(app: Starlette) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def stateful(app: Starlette) -> AsyncIterator[dict[str, int]]:
        yield {"limit": 3}

    Starlette(lifespan=lifespan(scheduler))
    Starlette(lifespan=lifespan(scheduler, worker=True, then=stateless))
    Starlette(lifespan=lifespan(scheduler, then=stateful))
    Starlette(routes=[Mount("/jobs", dashboard.asgi(scheduler, read_only=True))])

    async def use_async() -> None:
        text: str = await (await scheduler.aio.enqueue_now(charge, 42)).aio.result()
        data: bytes = await (await scheduler.aio.enqueue(fetch, "x").submit()).aio.result()
        again: str = await (await charge.enqueue(42).aio.submit()).aio.result()
        count: int = len(await scheduler.aio.enqueue_many(charge, [(1,), (2,)]))
        found: int = len(await scheduler.aio.jobs.find(JobFilter(tags=["billing"]), limit=10))
        done: bool = await scheduler.aio.cancel_job("x", reason="late") and await scheduler.aio.stop(drain=False)
        batch = await scheduler.enqueue_batch("b").for_each([1, 2], Orders().process).aio.submit()
        values: list[Any] = await batch.aio.results()
        (await scheduler.aio.schedule_recurring("0 2 * * *", cleanup, "x", name="n")).pause()
        known: Any = await scheduler.aio.handle("x").result(timeout=1)
        state = await scheduler.aio.handle("x").status()
"""

BAD = {
    'scheduler.enqueue(charge, "forty-two")': "arg-type|call-overload",
    "scheduler.enqueue(charge, 42, money=1)": "call-overload|call-arg",
    "scheduler.enqueue(charge, 1, 2, 3)": "call-overload",
    'scheduler.enqueue_now(charge, "forty-two")': "call-overload",
    'scheduler.schedule(5, charge, "forty-two")': "call-overload",
    'scheduler.aio.enqueue(charge, "forty-two")': "call-overload",
    'scheduler.aio.jobs.find(limit="ten")': "arg-type",
    "scheduler.aio.cancel_job()": "call-arg",
    "scheduler.enqueue_now(charge, 1).aio.cancel(1)": "arg-type",
    'charge.enqueue("forty-two")': "arg-type",
    "charge.enqueue()": "call-arg",
    'charge("forty-two")': "arg-type",
    'scheduler.enqueue(charge, 1).then(charge, "forty-two")': "call-overload",
    'call(charge, "forty-two")': "arg-type|call-overload",
    'scheduler.enqueue(charge, 1).with_timeout("5m")': "arg-type",
    "number: int = scheduler.enqueue_now(charge, 1).result()": "assignment",
    'scheduler.enqueue_batch("b").for_each(["x"], Orders().process)': "arg-type",
    'scheduler.enqueue_batch("b").for_each(["x"], charge)': "arg-type",
    "scheduler.enqueue_now(charge)": "unused-coroutine",
    "scheduler.enqueue(charge).submit()": "attr-defined",
    "scheduler.schedule(5, charge)": "unused-coroutine",
    'Orders().ship.enqueue("x")': "arg-type",
    "Orders().ship.enqueue()": "call-arg",
    'scheduler.enqueue_now(Orders.process, "x")': "arg-type|call-overload",
    "text: str = scheduler.enqueue_now(Orders.process, 1).result()": "assignment",
    'call(page, "x")': "arg-type|call-overload",
    'scheduler.schedule_recurring("0 2 * * *", charge, "x")': "arg-type|call-overload",
    'scheduler.schedule_recurring("0 2 * * *", charge, "x", name="n")': "arg-type|call-overload",
    'scheduler.schedule_recurring("0 2 * * *", charge, name="n")': "unused-coroutine",
    'scheduler.schedule_recurring("0 2 * * *", charge, 1, 2, name="n")': "arg-type|call-arg|call-overload",
    'scheduler.schedule_recurring("0 2 * * *", cleanup, name=5)': "call-overload",
    'scheduler.schedule_recurring("0 2 * * *", cleanup, priority="high")': "call-overload",
    "scheduler.enqueue(charge, 1).then(charge)": "unused-coroutine",
    'scheduler.enqueue(charge, 1).then_on_success(charge, "x")': "arg-type|call-overload",
    "scheduler.enqueue(charge, 1).then_on_failure(charge)": "unused-coroutine",
    'scheduler.enqueue(charge, 1).when(is_slow, charge, "x")': "arg-type|call-overload",
    'scheduler.enqueue(charge, 1).when(is_slow, charge, "x", order=1)': "arg-type|call-overload",
    "scheduler.enqueue(charge, 1).when(is_slow, charge, order=1)": "unused-coroutine",
    "scheduler.enqueue(charge, 1).when(is_slow, charge, 1, 2)": "arg-type|call-overload",
    'scheduler.enqueue(charge, 1).when(is_slow, charge, 1, order="first")': "arg-type|call-arg|call-overload",
    "scheduler.enqueue(charge, 1).when(is_large, charge, 1)": "arg-type|call-overload",
    "scheduler.enqueue(charge, 1).when(alert, charge, 1)": "arg-type|call-overload",
    'scheduler.enqueue(charge, 1).when_result(is_large, charge, "x")': "arg-type|call-overload",
    "scheduler.enqueue(charge, 1).when_result(alert, charge, 1)": "arg-type|call-overload",
    'scheduler.enqueue(charge, 1).branch(Condition.success(), charge, "x")': "arg-type|call-overload",
    "scheduler.enqueue(charge, 1).branch(is_slow, charge, 1)": "arg-type|call-overload",
    "Condition.custom(is_large)": "arg-type",
    "Condition.result(alert)": "arg-type",
    "Condition.batch(is_slow)": "arg-type",
    "scheduler.enqueue(charge, 1).on_success(alert)": "arg-type",
    "scheduler.enqueue(charge, 1).on_failure(record)": "arg-type",
    "scheduler.enqueue(charge, 1).on_failure(charge)": "arg-type",
    'scheduler.join([]).then(charge, "x")': "arg-type|call-overload",
    'scheduler.enqueue_batch("b").then_on_batch_success(charge, "x")': "arg-type|call-overload",
    'scheduler.enqueue_batch("b").then_on_batch_failure(charge)': "unused-coroutine",
    'scheduler.enqueue_batch("b").then_when_success_rate("most", charge, 1)': "arg-type|call-overload",
    'scheduler.enqueue_batch("b").then_when_success_rate(0.9, charge, "x")': "arg-type|call-overload",
    'scheduler.enqueue_batch("b").then_when_failure_count(3, charge)': "unused-coroutine",
    'scheduler.enqueue_batch("b").then_when_batch(is_slow, charge, 1)': "arg-type|call-overload",
    'scheduler.enqueue_batch("b").then_when_batch(half, charge, "x")': "arg-type|call-overload",
    'scheduler.enqueue_batch("b").on_progress(is_slow)': "arg-type",
    "Starlette(lifespan=lifespan)": "arg-type",
    "lifespan(scheduler, then=charge)": "arg-type|call-overload",
    "handles: list[JobHandle[int]] = scheduler.enqueue_many(charge, [(1,)])": "assignment|arg-type",
}


class TestTypes:
    def check(self, tmp_path: Path, code: str) -> tuple[str, int]:
        from mypy import api

        file = tmp_path / "shop.py"
        file.write_text(textwrap.dedent(code))
        root = Path(__file__).parents[3]
        output, errors, status = api.run(
            [
                "--strict",
                "--no-error-summary",
                "--config-file=",
                f"--cache-dir={root / '.mypy_cache' / 'typing-tests'}",
                str(file),
            ]
        )
        assert not errors
        return output, status

    def test_right_code_is_accepted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The forms of the API page pass a strict type checker, with the result's type known."""
        monkeypatch.setenv("MYPYPATH", str(Path(__file__).parents[3] / "src"))
        output, status = self.check(tmp_path, GOOD)
        assert status == 0, output

    def test_wrong_arguments_are_type_errors(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each misuse is an error on its own line."""
        monkeypatch.setenv("MYPYPATH", str(Path(__file__).parents[3] / "src"))
        code = textwrap.dedent(GOOD) + "\n" + "\n".join(BAD) + "\n"
        output, _ = self.check(tmp_path, code)
        first = len((textwrap.dedent(GOOD) + "\n").splitlines()) + 1
        missing = []
        for line, (statement, kind) in enumerate(BAD.items(), start=first):
            if not re.search(rf"shop\.py:{line}: error: .*\[({kind})\]", output):
                missing.append(statement)
        assert not missing, output

    def problems(self, tmp_path: Path, code: str) -> dict[int, list[str]]:
        """What Pyright says about *code*, by line."""
        root = Path(__file__).parents[3]
        (tmp_path / "shop.py").write_text(code)
        settings = {
            "include": ["shop.py"],
            "extraPaths": [str(root / "src")],
            "pythonVersion": f"{sys.version_info.major}.{sys.version_info.minor}",
            "typeCheckingMode": "standard",
        }
        (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
        # Pyright as a wheel that brings its own interpreter for it: nothing is downloaded when it runs.
        command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(tmp_path)]
        command += [
            "--pythonpath",
            sys.executable,
        ]  # else packages that we build on are unknown, and everything fits them
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        found: dict[int, list[str]] = {}
        for problem in json.loads(answer.stdout)["generalDiagnostics"]:
            if problem["severity"] == "error":
                found.setdefault(problem["range"]["start"]["line"] + 1, []).append(problem["message"])
        return found

    def test_pyright_agrees(self, tmp_path: Path) -> None:
        """It accepts all of the right code, and finds each of the misuses, on its own line."""
        good = textwrap.dedent(GOOD) + "\n"
        found = self.problems(tmp_path, good + "\n".join(BAD) + "\n")
        first = len(good.splitlines()) + 1
        assert {line: said for line, said in found.items() if line < first} == {}
        passed = [statement for line, statement in enumerate(BAD, start=first) if line not in found]
        assert passed == []
