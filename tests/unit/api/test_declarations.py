"""Declared jobs: their defaults, and how they are submitted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ratchet import BackoffPolicy, InvalidJob, Priority
from ratchet.testing import ManualScheduler
from tests.unit.api.builder_samples import Orders, other


def failing(number: int) -> int:
    raise ValueError(number)


class TestDeclarations:
    def test_the_same_function_comes_back(self, scheduler: ManualScheduler) -> None:
        """``@scheduler.job`` returns the very function, with ``.enqueue`` and ``.options``."""

        def local(number: int) -> int:
            return number + 1

        marked = scheduler.job(max_retries=2, tags=["billing"], name="local")(local)
        assert marked is local  # type: ignore[comparison-overlap]
        assert marked(1) == 2
        assert (marked.options.max_retries, marked.options.name) == (2, "local")
        job = marked.enqueue(1).with_tags("more").submit().job()
        assert (job.target, job.max_retries, job.tags) == ("local", 2, ("billing", "more"))

    def test_declared_options_are_defaults(self, scheduler: ManualScheduler) -> None:
        """A builder's word counts more than the declaration's."""

        @scheduler.job(
            name="defaults",
            max_retries=5,
            backoff=BackoffPolicy.FIXED,
            backoff_base=10,
            timeout=30,
            priority=Priority.HIGH,
            resource="gateway",
            no_retry_for=(ValueError,),
            queue="slow",
        )
        def task() -> None: ...

        plain = task.enqueue().submit().job()
        assert (plain.max_retries, plain.timeout, plain.priority) == (5, timedelta(seconds=30), Priority.HIGH)
        assert (plain.resource, plain.queue) == ("gateway", "slow")
        own = task.enqueue().with_max_retries(0).with_priority(Priority.LOW).submit().job()
        assert (own.max_retries, own.priority) == (0, Priority.LOW)

    def test_without_parentheses(self, scheduler: ManualScheduler) -> None:
        """``@scheduler.job`` alone declares with all defaults."""

        @scheduler.job
        def bare(number: int) -> int:
            return number

        assert bare.enqueue(3).submit().job().args == (3,)

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"max_retries": -1}, "at least 0"),
            ({"backoff": BackoffPolicy.FIXED}, "base longer than zero"),
            ({"timeout": 0}, "longer than zero"),
            ({"priority": 9}, "priority is one of"),
            ({"tags": "billing"}, r"tags=\['billing'\]"),
            ({"aliases": "old"}, r"aliases=\['old'\]"),
            ({"lane": "gpu"}, "thread, async, process"),
            ({"no_retry_for": ("ValueError",)}, "exception classes"),
            ({"name": ""}, "must not be empty"),
        ],
    )
    def test_a_declaration_that_makes_no_sense(
        self, scheduler: ManualScheduler, options: dict[str, Any], says: str
    ) -> None:
        """A bad declaration is refused where it is written."""
        with pytest.raises(InvalidJob, match=says):
            scheduler.job(**options)

    @pytest.mark.parametrize("thing", [staticmethod(other), Orders, 42], ids=["static", "class", "number"])
    def test_only_functions_are_declared(self, scheduler: ManualScheduler, thing: Any) -> None:
        """The decorator says where it belongs."""
        with pytest.raises(InvalidJob, match=r"@scheduler\.job"):
            scheduler.job(name="x")(thing)
