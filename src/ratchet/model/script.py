"""
The script that was started, under the name that other processes import it by.

Python calls the started script ``__main__``, and a child of multiprocessing calls it ``__mp_main__``. A worker that
imports the same file calls it by its module's name, so that is the name to store.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from typing import Final

#: The module of the script that was started.
MAIN: Final = "__main__"
#: The same in a child that multiprocessing has spawned.
MAIN_IN_CHILD: Final = "__mp_main__"


def importable_name(module: str) -> str:
    """*module* as others import it: for the started script its own module's name, or ``__main__`` if it has none."""
    if module not in (MAIN, MAIN_IN_CHILD):
        return module
    script = sys.modules.get(module)
    name = getattr(getattr(script, "__spec__", None), "name", None)
    if isinstance(name, str) and name not in (MAIN, MAIN_IN_CHILD):  # python -m shop.jobs
        return MAIN if "__main__" in name.split(".") else name
    file = getattr(script, "__file__", None)
    return (_module_of(file) if isinstance(file, str) else None) or MAIN


def is_script(module: str) -> bool:
    """True if *module* is the name of the started script: importing it would run the script a second time."""
    return module in (MAIN, MAIN_IN_CHILD) or module == importable_name(MAIN)


@lru_cache(maxsize=64)
def _module_of(file: str) -> str | None:
    """The name by which *file* can be imported from here; nothing is imported to find out."""
    path = Path(file)
    name = path.stem
    if path.suffix != ".py" or not name.isidentifier() or name.startswith("__"):
        return None
    try:
        spec = importlib.util.find_spec(name)
        found = None if spec is None else spec.origin
        return name if found is not None and path.samefile(found) else None
    except Exception:  # a finder of somebody else's, or a file that is gone: the script keeps its own name
        return None
