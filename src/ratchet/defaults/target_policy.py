from __future__ import annotations

import re
from collections.abc import Iterable

from ratchet.model.errors import ConfigurationError

_NAME = r"[^\W\d]\w*"
_PREFIX = re.compile(rf"{_NAME}(?:\.{_NAME})*(?::{_NAME}(?:\.{_NAME})*)?")

#: Modules of Python that run code or commands, or change the process, for whoever calls their functions. Allowing one of
#: them would give that to whoever can write to the database.
DENIED = frozenset(
    [
        "asyncio",
        "bdb",
        "builtins",
        "cProfile",
        "code",
        "codeop",
        "concurrent",
        "ctypes",
        "dbm",
        "doctest",
        "ensurepip",
        "gc",
        "importlib",
        "inspect",
        "marshal",
        "multiprocessing",
        "nt",
        "ntpath",
        "os",
        "pathlib",
        "pdb",
        "pickle",
        "pickletools",
        "pip",
        "pkgutil",
        "posix",
        "posixpath",
        "profile",
        "pty",
        "py_compile",
        "resource",
        "runpy",
        "setuptools",
        "shelve",
        "shutil",
        "signal",
        "site",
        "socket",
        "socketserver",
        "subprocess",
        "sys",
        "sysconfig",
        "tempfile",
        "timeit",
        "trace",
        "types",
        "venv",
        "webbrowser",
        "zipapp",
        "zipimport",
        "_ctypes",
        "_pickle",
        "_posixsubprocess",
        "_thread",
    ]
)


class PrefixTargetPolicy:
    """
    Allows the targets under the given prefixes, and without any: nothing.

    A module of Python that runs code or commands (`DENIED`) is refused as a whole; one function of it may be named.

    A prefix is a module or package (``shop``, ``shop.jobs``) or a class or function in one
    (``shop.jobs:OrderService``). It matches whole names only: ``shop`` allows ``shop:run`` and
    ``shop.jobs:run``, not ``shopping:run``.
    """

    def __init__(self, prefixes: Iterable[str] = ()) -> None:
        if isinstance(prefixes, str):
            raise ConfigurationError(
                f"allow takes a list of module prefixes; write allow=[{prefixes!r}] instead of allow={prefixes!r}"
            )
        self.prefixes = tuple(dict.fromkeys(prefixes))
        for prefix in self.prefixes:
            if not (isinstance(prefix, str) and _PREFIX.fullmatch(prefix)):
                raise ConfigurationError(
                    f"{prefix!r} is not a module prefix; write a plain dotted name such as 'shop' or 'shop.jobs' "
                    f"(it includes everything below), or 'shop.jobs:OrderService' for one class or function"
                )
            if ":" not in prefix and prefix.partition(".")[0] in DENIED:
                raise ConfigurationError(
                    f"allow={prefix!r} would let whoever can write to the database run code here; allow your own function "
                    f"that calls it, or name the one function that is meant, as in '{prefix}:function'"
                )
        self._beginnings = tuple(p + mark for p in self.prefixes for mark in ".:")

    def allows(self, target: str) -> bool:
        """True if *target* is one of the prefixes or continues one at a dot or colon."""
        return target.startswith(self._beginnings) or target in self.prefixes

    def hint(self, target: str) -> str:
        """What to do so that *target* may run: the narrowest module prefix that would allow it, unless nothing should."""
        module = target.partition(":")[0]
        if module.partition(".")[0] in DENIED:
            return (
                f"{module!r} is a module of Python that runs code or commands: call {target.partition(':')[2]} from a "
                f"function of your own, and declare that with @scheduler.job"
            )
        return f"add {target.partition(':')[0]!r} to allow, or declare the function with @scheduler.job"

    def __repr__(self) -> str:
        return f"PrefixTargetPolicy({list(self.prefixes)!r})"
