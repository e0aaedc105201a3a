"""`circuit_breaker`: which outside service a target depends on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any, Final, TypeVar

from ratchet.api.checks import exceptions_of, text_of
from ratchet.api.targets.registry import Protection, protect
from ratchet.model.breaker import DEFAULT_SETTINGS, BreakerSettings, Guard
from ratchet.model.cluster import BREAKER_GATE
from ratchet.model.errors import InvalidJob
from ratchet.model.job import KEY_LIMIT

T = TypeVar("T", bound=Callable[..., Any])

#: The longest name of a service: its probes are counted under that name with a prefix.
SERVICE_LIMIT: Final = KEY_LIMIT - len(BREAKER_GATE)


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
    settings = profile.settings if isinstance(profile, BreakerProfile) else profile
    protection = Protection(
        text_of(service, "the name of a service", limit=SERVICE_LIMIT),
        Guard(settings, exceptions_of(record, "record"), exceptions_of(ignore, "ignore")),
    )

    def decorate(target: T) -> T:
        protect(target, protection)
        return target

    return decorate
