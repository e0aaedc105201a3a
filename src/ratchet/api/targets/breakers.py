"""`circuit_breaker`: which outside service a target depends on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from types import FunctionType
from typing import Any, Final, TypeVar

from ratchet.api.checks import exceptions_of, text_of
from ratchet.model.breaker import DEFAULT_SETTINGS, BreakerSettings, Guard
from ratchet.model.cluster import BREAKER_GATE
from ratchet.model.errors import InvalidJob
from ratchet.model.job import KEY_LIMIT

T = TypeVar("T", bound=Callable[..., Any])

_PROTECTION: Final = "__ratchet_breaker__"

#: The longest name of a service: its probes are counted under that name with a prefix.
SERVICE_LIMIT: Final = KEY_LIMIT - len(BREAKER_GATE)

#: What was found for functions; every submission asks.
_services: dict[FunctionType, str | None] = {}
_MOST_SERVICES: Final = 4096


class BreakerProfile(Enum):
    """Ready-made settings: how many failures of the last calls open the breaker, and for how long."""

    DEFAULT = DEFAULT_SETTINGS
    FAST = BreakerSettings(0.5, 20, 3, timedelta(seconds=5), 1)
    CRITICAL = BreakerSettings(0.25, 50, 3, timedelta(seconds=60), 5)
    EXTERNAL_API = BreakerSettings(0.5, 50, 5, timedelta(seconds=60), 3)

    @property
    def settings(self) -> BreakerSettings:
        """The numbers behind the name."""
        return self.value


@dataclass(frozen=True, slots=True)
class Protection:
    """What `circuit_breaker` left on a function or class."""

    service: str
    profile: BreakerProfile | BreakerSettings = BreakerProfile.DEFAULT
    record: tuple[type[BaseException], ...] = ()
    ignore: tuple[type[BaseException], ...] = ()

    @property
    def guard(self) -> Guard:
        """How calls of the target are judged."""
        settings = self.profile.settings if isinstance(self.profile, BreakerProfile) else self.profile
        return Guard(settings, self.record, self.ignore)


def circuit_breaker(
    service: str,
    *,
    profile: BreakerProfile | BreakerSettings = BreakerProfile.DEFAULT,
    record: tuple[type[BaseException], ...] = (),
    ignore: tuple[type[BaseException], ...] = (),
) -> Callable[[T], T]:
    """
    Let jobs of this function, or of this class's methods, wait while *service* is down.

    A job behind an open breaker is not started and consumes no attempt. *record*: only these
    exceptions count as failures of the service; *ignore*: these never do. All targets of a service
    should name the same *profile*: the state is one for all of them.
    """
    if not isinstance(service, str):
        raise InvalidJob(
            f"write @circuit_breaker('service-name') with the name of the service, not {service!r}"
        )
    if not isinstance(profile, BreakerProfile | BreakerSettings):
        raise InvalidJob(
            f"a breaker's profile is one of {', '.join(BreakerProfile.__members__)} or BreakerSettings, not {profile!r}"
        )
    protection = Protection(
        text_of(service, "the name of a service", limit=SERVICE_LIMIT),
        profile,
        exceptions_of(record, "record"),
        exceptions_of(ignore, "ignore"),
    )

    def protect(target: T) -> T:
        setattr(target, _PROTECTION, protection)
        _services.clear()
        return target

    return protect


def protection_of(target: Any) -> Protection | None:
    """What `circuit_breaker` said about a function or method: its own word, else its class's."""
    function = getattr(target, "__func__", target)
    own = getattr(function, _PROTECTION, None)
    if isinstance(own, Protection):
        return own
    owner = _class_of(target)
    inherited = getattr(owner, _PROTECTION, None) if owner is not None else None
    return inherited if isinstance(inherited, Protection) else None


def breaker_of(target: Any) -> str | None:
    """The service that *target* depends on; None if none was named."""
    if type(target) is not FunctionType:
        return _service_of(target)  # a method is made anew each time, and its instance is nobody's to keep
    try:
        return _services[target]
    except KeyError:
        if len(_services) >= _MOST_SERVICES:
            _services.clear()
        found = _services[target] = _service_of(target)
        return found


def _service_of(target: Any) -> str | None:
    protection = protection_of(target)
    return None if protection is None else protection.service


def _class_of(target: Any) -> type | None:
    if inspect.ismethod(target):
        receiver = target.__self__
        return receiver if isinstance(receiver, type) else type(receiver)
    written = getattr(target, "__qualname__", "")
    if "." not in written or "<locals>" in written:
        return None
    path = written.split(".")[:-1]
    scope: Any = getattr(target, "__globals__", {})
    owner: type | None = None
    for name in path:
        inner = scope.get(name)
        if not isinstance(inner, type):
            return None
        owner, scope = inner, vars(inner)
    return owner
