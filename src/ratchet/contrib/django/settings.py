"""What a project's settings say about Ratchet: the dictionary ``RATCHET``, or the ``OPTIONS`` of the backend in ``TASKS``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings as project

from ratchet.model.errors import ConfigurationError
from ratchet.model.options import Options

BACKEND = "ratchet.contrib.django.RatchetBackend"
_BACKENDS = (BACKEND, "ratchet.contrib.django.task_backend.RatchetBackend")
KNOWN = ("database", "options", "allow", "imports", "dashboard")


@dataclass(frozen=True)
class Settings:
    """Which database keeps the jobs, and how they are run."""

    database: str
    options: Options
    allow: tuple[str, ...] | None
    imports: tuple[str, ...]
    #: Where the dashboard is, for links of the admin's pages; None: nowhere.
    dashboard: str | None = None

    @classmethod
    def read(cls) -> Settings:
        """What the settings say; `ConfigurationError` names what cannot be used."""
        given = _given()
        if unknown := sorted(set(given) - set(KNOWN)):
            raise ConfigurationError(
                f"settings.RATCHET has {', '.join(map(repr, unknown))}; known are {', '.join(KNOWN)}"
            )
        database = given.get("database", "default")
        if database not in project.DATABASES:
            raise ConfigurationError(
                f"settings.RATCHET names the database {database!r}, which DATABASES does not have; it has "
                f"{', '.join(map(repr, project.DATABASES)) or 'none'}"
            )
        allow = given.get("allow")
        return cls(
            database,
            _options(given.get("options", {})),
            None if allow is None else _names("allow", allow),
            _names("imports", given.get("imports", ())),
            _address(given.get("dashboard")),
        )


def backends() -> dict[str, dict[str, Any]]:
    """The entries of ``TASKS`` that are Ratchet's, by alias."""
    tasks: Mapping[str, Any] = getattr(project, "TASKS", None) or {}
    return {alias: entry for alias, entry in tasks.items() if entry.get("BACKEND") in _BACKENDS}


def _given() -> dict[str, Any]:
    """``RATCHET``, and what the backends of ``TASKS`` add; two that differ are an error, for there is one scheduler."""
    own = getattr(project, "RATCHET", None) or {}
    if not isinstance(own, Mapping):
        raise ConfigurationError(f"settings.RATCHET is a dictionary, not {own!r:.100}")
    given = dict(own)
    for alias, entry in backends().items():
        for name, value in (entry.get("OPTIONS") or {}).items():
            if name in given and given[name] != value:
                raise ConfigurationError(
                    f"TASKS[{alias!r}]['OPTIONS'][{name!r}] differs from what settings.RATCHET or another backend says; a project "
                    f"has one scheduler: say it once, in settings.RATCHET"
                )
            given[name] = value
    return given


def _options(given: Any) -> Options:
    if isinstance(given, Options):
        return given
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            f"settings.RATCHET['options'] is a dictionary or an Options(…), not {given!r:.100}"
        )
    try:
        return Options(**given)
    except TypeError as error:
        raise ConfigurationError(f"settings.RATCHET['options']: {error}") from None


def _names(setting: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigurationError(
            f"settings.RATCHET[{setting!r}] is a list of module names, not {value!r:.100}"
        )
    return tuple(value)


def _address(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value.startswith(("/", "http://", "https://"))):
        raise ConfigurationError(
            f"settings.RATCHET['dashboard'] is where the dashboard is mounted, such as '/ratchet/', not {value!r:.100}"
        )
    return None if value is None else value.rstrip("/")
