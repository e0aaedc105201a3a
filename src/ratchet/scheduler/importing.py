"""Modules that declare jobs: imported by name before a node starts, or found below a package."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ratchet.model.errors import ConfigurationError
from ratchet.model.script import is_script

#: The name of the modules that `discover` looks for.
JOBS: Final = "jobs"


def module_names(names: Iterable[str]) -> tuple[str, ...]:
    """*names* of modules, checked and each once; nothing is imported."""
    if isinstance(names, str):
        raise ConfigurationError(f"imports takes a list of modules; write imports=[{names!r}]")
    found = tuple(dict.fromkeys(names))
    for name in found:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise ConfigurationError(
                f"{name!r} is not the name of a module; write it with dots, such as 'shop.jobs'"
            )
    return found


def import_modules(names: Iterable[str]) -> None:
    """Import each of *names*; `ConfigurationError` names the one that cannot be imported, and why."""
    for name in names:
        if is_script(name):  # its code has run already
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
                raise ConfigurationError(
                    f"the module {name!r} is to be imported, but there is no module {error.name!r}; "
                    f"check its name, and that this process is started where it can be imported"
                ) from error
            raise _failed(name, error) from error
        except (Exception, SystemExit) as error:
            raise _failed(name, error) from error


def _failed(name: str, error: BaseException) -> ConfigurationError:
    return ConfigurationError(
        f"importing the module {name!r} raised {type(error).__name__}: {error}; "
        f"see that `python -c 'import {name}'` works"
    )


def discover(package: str) -> list[str]:
    """Import every module named ``jobs`` in *package* and in the packages below it; their names, sorted."""
    module_names([package])
    import_modules([package])
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ConfigurationError(
            f"{package!r} is a module and not a package, so there is nothing below it; "
            f"import it, or name the package that it is in"
        )
    found = sorted(_jobs_below(package, list(spec.submodule_search_locations)))
    import_modules(found)
    return found


def _jobs_below(package: str, path: Sequence[str]) -> Iterator[str]:
    """Only names are read here: a package is imported when a module in it is."""
    import pkgutil

    for module in pkgutil.iter_modules(path, f"{package}."):
        if module.name.rpartition(".")[2] == JOBS:
            yield module.name
        if module.ispkg:
            spec = module.module_finder.find_spec(module.name, None)
            yield from _jobs_below(module.name, list(spec.submodule_search_locations or ()) if spec else [])
