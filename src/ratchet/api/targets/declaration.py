"""`JobDeclaration`: what ``@scheduler.job`` says about a function, and where it leaves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from ratchet.model.errors import InvalidJob
from ratchet.model.status import BackoffPolicy, Lane, Priority

#: Where ``@scheduler.job`` leaves its declaration on the function.
DECLARATION: Final = "__ratchet_job__"

#: The longest name a store keeps.
NAME_LIMIT: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeclaration:
    """What ``@scheduler.job`` says about a function: its stable name and the defaults of its jobs."""

    name: str
    aliases: tuple[str, ...] = ()
    max_retries: int = 0
    backoff: BackoffPolicy = BackoffPolicy.NONE
    backoff_base: timedelta = timedelta(0)
    jitter: float = 0.0
    timeout: timedelta | None = None
    priority: Priority = Priority.NORMAL
    tags: tuple[str, ...] = ()
    resource: str | None = None
    no_retry_for: tuple[type[BaseException], ...] = ()
    lane: Lane | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases):
            if (
                not isinstance(name, str)
                or not name.strip()
                or len(name) > NAME_LIMIT
                or not name.isprintable()
            ):
                raise InvalidJob(
                    f"a job's name must be printable and have 1 to {NAME_LIMIT} characters, not {name!r}"
                )
        if self.max_retries < 0:
            raise InvalidJob(
                f"max_retries of {self.name!r} must not be negative, but is {self.max_retries!r}"
            )
        for error in self.no_retry_for:
            if not (isinstance(error, type) and issubclass(error, BaseException)):
                raise InvalidJob(f"no_retry_for of {self.name!r} takes exception classes, not {error!r}")


def default_name(function: Callable[..., Any]) -> str:
    """The name under which *function* is stored unless it is declared with another."""
    return f"{function.__module__}:{function.__qualname__}"


def declaration_of(target: object) -> JobDeclaration | None:
    """What ``@scheduler.job`` said about *target*, a function or a method; None if nothing."""
    declaration = getattr(target, DECLARATION, None)
    return declaration if isinstance(declaration, JobDeclaration) else None
