"""`OptionSources`: options as environment variables and TOML files spell them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import ConfigurationError
from .settings import Setting

_TABLES = ("ratchet", "tool.ratchet")
#: Names that belong to the scheduler or the command line, in the same table and with the same prefix.
_RESERVED = frozenset({"url", "app", "allow", "drain"})


class OptionSources:
    """Reads and checks options that are set outside of the code; unknown names are refused."""

    def __init__(self, settings: Mapping[str, Setting[Any, Any]], prefix: str) -> None:
        self._settings = settings
        self._prefix = prefix

    def require_known(self, name: str, source: str) -> None:
        """`ConfigurationError`, with the name that was probably meant, if there is no such option."""
        if name in self._settings:
            return
        closest = self._closest(name)
        meant = f"did you mean {closest!r}?" if closest else f"there are {', '.join(self._settings)}"
        raise ConfigurationError(f"{source}: there is no option {name!r}; {meant}")

    def _closest(self, name: str) -> str | None:
        import difflib  # only where a name is wrong

        return next(iter(difflib.get_close_matches(name, self._settings, n=1, cutoff=0.75)), None)

    def in_environment(self, environ: Mapping[str, str]) -> dict[str, Any]:
        """The options among the variables; one that only looks like an option is refused."""
        found: dict[str, Any] = {}
        for variable, text in environ.items():
            if not variable.startswith(self._prefix):
                continue
            name = variable.removeprefix(self._prefix).lower()
            if name in self._settings:
                found[name] = self._settings[name].parsed(text, variable)
            elif name not in _RESERVED and self._closest(name) is not None:
                self.require_known(name, variable)
        return found

    def in_toml(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """The options in the table of the file at *path*."""
        file = Path(path)
        found: dict[str, Any] = {}
        for key, value in _table(file).items():
            name = key.replace("-", "_")
            if name in _RESERVED:
                continue
            source = f"{key} in {file}"
            self.require_known(name, source)
            setting = self._settings[name]
            found[name] = (
                setting.parsed(value, source) if isinstance(value, str) else setting.checked(value, source)
            )
        return found


def _table(file: Path) -> dict[str, Any]:
    import tomllib  # most programs have no such file

    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is not valid TOML: {error}") from error
    tool = document.get("tool", {})
    table = document.get("ratchet", tool.get("ratchet") if isinstance(tool, dict) else None)
    if not isinstance(table, dict):
        raise ConfigurationError(f"{file} has no table [{_TABLES[0]}] or [{_TABLES[1]}]")
    return table
