"""What all builders share: nothing is stored before the last verb, and each is used once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from ratchet.api.backend import Backend
from ratchet.api.checks import (
    count_of,
    exceptions_of,
    fraction_of,
    member_of,
    priority_of,
    queue_of,
    resource_of,
    tags_of,
    text_of,
)
from ratchet.api.submit.steps import Step, class_names
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import InvalidJob, UnsubmittedJobWarning
from ratchet.model.status import BackoffPolicy, Priority

_PACKAGE = __name__.partition(".")[0]


class Draft:
    """
    Something that is being described and not yet stored.

    Dropped without its last verb (``submit``, ``start``) it warns, unless it was refused in between:
    then its caller knows already.
    """

    _VERB = "submit()"

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._spent: str | None = None
        self._armed = True
        self._origin = _caller()

    def _label(self) -> str:
        return type(self).__name__

    def _require_open(self) -> None:
        if self._spent is not None:
            raise InvalidJob(f"this {type(self).__name__} was already {self._spent}; make a new one")

    def _spend(self, how: str) -> None:
        self._require_open()
        self._spent = how
        self._armed = False

    def _disarm(self) -> None:
        self._armed = False

    def _editing(self) -> _Editing:
        return _Editing(self)

    def __del__(self) -> None:
        # __init__ may have been refused halfway; a process that ends has other worries
        if not getattr(self, "_armed", False) or sys.is_finalizing() or sys.exc_info()[0] is not None:
            return
        filename, line = self._origin
        warnings.warn_explicit(
            f"{self._label()} was dropped without {self._VERB}: nothing was stored",
            UnsubmittedJobWarning,
            filename,
            line,
        )


class _Editing:
    """Guards one change of a draft: refused when it is spent, and a refusal silences the warning."""

    __slots__ = ("_draft",)

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def __enter__(self) -> None:
        self._draft._require_open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._draft._disarm()


def _caller() -> tuple[str, int]:
    """File and line of the code outside of this package that is running."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class StepDraft(Draft):
    """A draft with a step that ``with_…`` configures: the one named last."""

    _step: Step

    def with_priority(self, priority: Priority) -> Self:
        """How urgent the job is, LOWEST to CRITICAL; waiting raises it in effect."""
        with self._editing():
            self._step.given["priority"] = priority_of(priority)
        return self

    def with_max_retries(self, retries: int) -> Self:
        """How often the job runs again after a failure; 0: never."""
        with self._editing():
            self._step.given["max_retries"] = count_of(retries, "max_retries")
        return self

    def with_backoff(self, policy: BackoffPolicy, base: Duration = 0, *, jitter: float = 0.0) -> Self:
        """How long it waits before a retry: FIXED *base*, or EXPONENTIAL from *base* on; *jitter* spreads it."""
        with self._editing():
            self._step.given |= backoff_settings(policy, base, jitter)
        return self

    def with_timeout(self, timeout: Duration) -> Self:
        """How long one run may take; after that it is stopped and fails."""
        with self._editing():
            self._step.given["timeout"] = to_timedelta(timeout, "the timeout", zero=False)
        return self

    def with_expiry(self, expiry: Duration) -> Self:
        """How long after submit the job may still start; after that it is CANCELED."""
        with self._editing():
            self._step.given["expiry"] = to_timedelta(expiry, "the expiry", zero=False)
        return self

    def with_tags(self, *tags: str) -> Self:
        """Words to find the job by, added to those it has."""
        with self._editing():
            self._step.tags = (*self._step.tags, *tags_of(tags))
        return self

    def with_param(self, name: str, value: Any) -> Self:
        """A value that the job reads with ``ctx.param(name)`` and that is no argument."""
        with self._editing():
            self._step.params[text_of(name, "the name of a param")] = value
        return self

    def with_resource(self, name: str) -> Self:
        """What the job uses: ``scheduler.limits`` says how many may use it at once."""
        with self._editing():
            self._step.given["resource"] = resource_of(name)
        return self

    def with_queue(self, name: str) -> Self:
        """The queue the job waits in; nodes may serve some queues only, and a queue can be paused."""
        with self._editing():
            self._step.given["queue"] = queue_of(name)
        return self

    def with_concurrency_key(self, key: str, *, limit: int) -> Self:
        """At most *limit* jobs with this key run at once, in the whole cluster."""
        with self._editing():
            name = resource_of(key, "a concurrency key")
            self._step.limits[name] = count_of(limit, "the limit of a concurrency key", at_least=1)
            self._step.given["limit_key"] = name
        return self

    def with_fairness_key(self, key: str) -> Self:
        """Keys take turns: one that submits much does not keep the others waiting."""
        with self._editing():
            self._step.given["fairness_key"] = text_of(key, "a fairness key")
        return self

    def with_no_retry_for(self, *errors: type[BaseException]) -> Self:
        """Exceptions, and what derives from them, after which no retry helps."""
        with self._editing():
            self._step.given["no_retry_for"] = class_names(exceptions_of(errors, "with_no_retry_for"))
        return self

    def on_success(self, callback: Callable[..., Any]) -> Self:
        """Run ``callback(ctx)`` as a job of its own when the job has succeeded; importable, at least once."""
        with self._editing():
            self._step.given["on_success"] = callback
        return self

    def on_failure(self, callback: Callable[..., Any]) -> Self:
        """Run ``callback(ctx, error)`` as a job of its own when the job has failed for good."""
        with self._editing():
            self._step.given["on_failure"] = callback
        return self


def backoff_settings(policy: BackoffPolicy, base: Duration, jitter: float) -> dict[str, Any]:
    """A backoff, checked: what grows needs something to grow from."""
    kind = member_of(BackoffPolicy, policy, "a backoff policy")
    wait = to_timedelta(base, "the base of a backoff")
    if kind is not BackoffPolicy.NONE and not wait:
        raise InvalidJob(f"backoff {kind} needs a base longer than zero, such as timedelta(seconds=30)")
    return {
        "backoff": kind,
        "backoff_base": wait if kind is not BackoffPolicy.NONE else timedelta(),
        "jitter": fraction_of(jitter, "the jitter of a backoff"),
    }
