"""The pages of the API reference: which public names there are, and on which page each of them is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any, get_type_hints

import ratchet
import ratchet.contrib
import ratchet.testing
from docs.book.docstrings import described_class, signature
from docs.book.docstrings import text_of as _text

#: Where a reader looks for a name, by the module that it lives in; the first prefix that fits counts.
GROUPS = (
    ("scheduler", "The scheduler", "What an application makes once.", ("ratchet.scheduler",)),
    ("jobs", "Declare and submit jobs", "From a function to a stored job.", ("ratchet.api.submit", "ratchet.api.targets")),
    ("batches", "Batches and schedules", "Many jobs as one, and jobs by the clock.", ("ratchet.api.batches", "ratchet.api.recurring")),
    ("context", "Inside a job", "What running code knows and can do.", ("ratchet.api.context",)),
    ("observe", "Look at jobs", "Handles, reasons, health.", ("ratchet.api.observe",)),
    ("events", "Events", "What listeners get: [the table of events](../events.md) says when.", ("ratchet.model.events",)),
    ("errors", "Errors", "All of them under one root: [the table of errors](../errors.md) says what to do.", ("ratchet.model.errors",)),
    ("options", "Options", "Everything that can be set: [the table of options](../options.md) has the variables.", ("ratchet.model.options",)),
    ("spi", "Interfaces", "What you can replace; the docstring of each is its contract. [How to replace a part](../../how-to/parts.md).", ("ratchet.spi",)),
    ("values", "Values", "What verbs take and return.", ("ratchet.model", "ratchet")),
)  # fmt: skip


def public_names(module: Any) -> list[str]:
    """What a module offers: its ``__all__``, else the classes and functions that are defined in it without an underscore."""
    declared = getattr(module, "__all__", None)
    if declared is not None:
        return [name for name in declared if not name.startswith("__")]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


def contrib_modules() -> list[str]:
    """The doors to other software. What is below ``alerting`` is how they are built, and the pytest plugin is fixtures."""
    found = [module.name for module in pkgutil.iter_modules(ratchet.contrib.__path__)]
    return [f"ratchet.contrib.{name}" for name in found if name not in ("alerting", "pytest_plugin")]


def accessors() -> list[type]:
    """The classes behind ``scheduler.jobs``, ``scheduler.queues`` and the like."""
    found: dict[str, type] = {}
    for value in vars(ratchet.Scheduler).values():
        getter = getattr(value, "fget", None) or getattr(value, "func", None)
        if getter is None:
            continue
        result = get_type_hints(getter, {**vars(inspect.getmodule(getter)), **_late(getter)}).get("return")
        if inspect.isclass(result) and result.__module__.startswith("ratchet.") and not _is_public(result):
            found[result.__name__] = result
    return list(found.values())


def _late(getter: Any) -> dict[str, Any]:
    """Names that a module imports for annotations only."""
    from ratchet.aio import AsyncScheduler

    return {"AsyncScheduler": AsyncScheduler}


def _is_public(value: type) -> bool:
    return getattr(ratchet, value.__name__, None) is value


def grouped() -> dict[str, list[str]]:
    """The names of ``ratchet`` by the page that has them."""
    pages: dict[str, list[str]] = {group[0]: [] for group in GROUPS}
    for name in public_names(ratchet):
        home = ratchet._HOMES[name]
        page = next(group[0] for group in GROUPS if home.startswith(group[3]))
        pages[page].append(name)
    for found in pages.values():
        found.sort(key=lambda name: (name.startswith("Async"), name))  # the await face says the same again
    return pages


def write_pages(into: Path) -> list[str]:
    """Write the pages; their names."""
    folder = into / "reference" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    made: list[tuple[str, str, str, list[str]]] = []
    names = grouped()
    for page, title, sentence, _ in GROUPS:
        entries = [f"ratchet.{name}" for name in names[page]]
        if page == "observe":
            entries += [
                f"{each.__module__}.{each.__qualname__}"
                for each in accessors()
                if each.__name__ != "AsyncScheduler"
            ]
        if page == "scheduler":
            entries.append("ratchet.aio.AsyncScheduler")
        made.append((page, title, sentence, entries))
    testing = [f"ratchet.testing.{name}" for name in public_names(ratchet.testing) if name != "ManualClock"]
    made.append(
        (
            "testing",
            "ratchet.testing",
            "For tests of code that uses jobs: [how](../../how-to/testing.md).",
            testing,
        )
    )
    made.append(
        (
            "dashboard",
            "ratchet.dashboard",
            "The dashboard inside your application: [how](../../how-to/dashboard.md).",
            ["ratchet.dashboard.asgi", "ratchet.dashboard.wsgi"],
        )
    )
    made.append(
        ("tck", "ratchet.tck", "The conformance kit for stores of your own.", ["ratchet.tck.Harness"])
    )
    for page, title, sentence, entries in made:
        (folder / f"{page}.md").write_text(_page(title, sentence, entries))
    (folder / "contrib.md").write_text(_contrib())
    made.append(("contrib", "ratchet.contrib", "Frameworks, metrics, traces, alerts, encryption.", []))
    (folder / "index.md").write_text(_index(made))
    return [f"reference/api/{page}" for page, *_ in made] + ["reference/api/index"]


def _page(title: str, sentence: str, entries: list[str]) -> str:
    return f"# {title}\n\n{sentence}\n\n" + "".join(_entry(entry) for entry in entries)


def _entry(dotted: str) -> str:
    """A name with its signature, its docstring and its members."""
    module, _, name = dotted.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    shown = dotted if value.__class__ is not type or dotted.count(".") == 1 else f"{value.__module__}.{name}"
    if inspect.isclass(value):
        return described_class(shown, name, value)
    if inspect.isfunction(value):
        return f"## `{name}`\n\n{signature(f'def {name}', value)}{_text(value)}"
    return f"## `{name}`\n\n{CONSTANTS.get(name, f'`{value!r}`')}\n\n"


def _contrib() -> str:
    parts = [
        "# ratchet.contrib\n\nDoors to other people's software. Each module needs the extra of its name.\n\n"
    ]
    for dotted in contrib_modules():
        parts.append(f"## {dotted}\n\n")
        if dotted.endswith(".django"):
            parts.append(DJANGO)
            continue
        module = importlib.import_module(dotted)
        parts.append(_text(module))
        parts += [
            _entry(f"{dotted}.{name}").replace("\n### `", "\n#### `").replace("## `", "### `", 1)
            for name in public_names(module)
        ]
    return "".join(parts)


#: Names that are neither classes nor functions.
CONSTANTS = {
    "RESULT": "In the arguments of a step: what its parent returned.",
    "RESULTS": "In the arguments of a join: the list of what the joined jobs returned.",
}

#: Django's settings must be configured before its module can be looked at.
DJANGO = """\
Ratchet as a Django app: `INSTALLED_APPS += ["ratchet.contrib.django"]`. [How to use it](../../how-to/django.md).

### `scheduler`

The scheduler of the project, made from its settings when it is first imported.

### `RatchetBackend`

The backend for Django's `TASKS`: `{"BACKEND": "ratchet.contrib.django.RatchetBackend", "OPTIONS": {"database": "default"}}`.

"""


def _index(made: list[tuple[str, str, str, list[str]]]) -> str:
    rows = "".join(f"| [{title}]({page}.md) | {sentence} |\n" for page, title, sentence, _ in made)
    listed = "\n".join(page for page, *_ in made)
    return (
        "# API\n\nEverything that is importable from `ratchet`, `ratchet.testing` and `ratchet.contrib`, from the docstrings.\n\n"
        f"| | |\n|---|---|\n{rows}\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    )
