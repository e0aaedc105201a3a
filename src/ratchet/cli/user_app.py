"""Finds the user's scheduler from its name, ``shop.jobs:scheduler``; errors say what is wrong with the name."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ratchet.model.errors import ConfigurationError, RatchetError

if TYPE_CHECKING:
    from ratchet.scheduler import Scheduler

DEFAULT_ATTRIBUTE = "scheduler"


class AppNotUsable(ConfigurationError):
    """The app cannot be imported, or is no scheduler."""


def split_app(app: str) -> tuple[str, str]:
    """Module and attribute of *app*; without an attribute it is ``scheduler``."""
    module, _, attribute = app.partition(":")
    if "/" in module or module.endswith(".py"):
        dotted = module.removesuffix(".py").strip("./").replace("/", ".")
        raise AppNotUsable(f"{app!r} is a file; name the module: {dotted}:{attribute or DEFAULT_ATTRIBUTE}")
    if not module or not all(part.isidentifier() for part in module.split(".")):
        raise AppNotUsable(
            f"{app!r} is no app; write it as package.module:attribute, such as shop.jobs:scheduler"
        )
    return module, attribute or DEFAULT_ATTRIBUTE


def load_scheduler(app: str, path: str) -> Scheduler:
    """The scheduler of *app*, which is looked for in *path* first; `AppNotUsable` says why it cannot be used."""
    from ratchet.scheduler import Scheduler  # not for the supervisor, which only looks at the name of the app

    module_name, attribute = split_app(app)
    if path not in sys.path:
        sys.path.insert(0, path)
    found: Any = _import(module_name, app, path)
    module = found
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise AppNotUsable(f"{module_name} has no {attribute!r}{_suggestion(module)}")
        found = getattr(found, name)
    if not isinstance(found, Scheduler):
        raise AppNotUsable(f"{app} is not a Scheduler but {type(found).__name__}{_suggestion(module)}")
    return found


def _import(name: str, app: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and (name == missing or name.startswith(missing + ".")):
            raise AppNotUsable(
                f"{app}: there is no module {missing!r} in {path}, nor is it installed; "
                f"start the worker where it can be imported, or set PYTHONPATH"
            ) from None
        raise AppNotUsable(_told(name, error)) from None
    except RatchetError as error:
        raise AppNotUsable(f"importing {name} failed: {error}") from error
    except BaseException as error:
        raise AppNotUsable(_told(name, error)) from None


def _told(name: str, error: BaseException) -> str:
    """The error with the lines of user code that led to it, and without the machinery of imports."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and Path(frame.filename) != Path(__file__)
    ]
    lines = "".join(traceback.format_list(frames) + traceback.format_exception_only(error))
    return f"importing {name} failed:\n{lines}".rstrip()


def _suggestion(module: Any) -> str:
    from ratchet.scheduler import Scheduler

    names = [name for name, value in vars(module).items() if isinstance(value, Scheduler)]
    if names:
        return f"; did you mean {module.__name__}:{names[0]}?"
    close = difflib.get_close_matches(DEFAULT_ATTRIBUTE, list(vars(module)), n=1)
    return f"; did you mean {module.__name__}:{close[0]}?" if close else ""
