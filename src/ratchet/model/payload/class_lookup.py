"""From a type tag to its class, by the rules that a stored target obeys too."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import TargetNotAllowed, TargetNotFound
from ..script import importable_name
from ..stored_names import STORED, classes_along, has_dunder, imported_module, loaded_module

#: Says whether the class ``qualname`` of ``module`` may be imported to restore a stored value.
AllowType = Callable[[str, str], bool]


def class_named(module: str, qualname: str, allow_type: AllowType | None, *, importing: bool) -> type:
    """
    The class that a type tag names.

    The name is a plain one, *allow_type* is asked before anything is imported, and what the name leads to (the class
    and each class around it) must come from where *allow_type* permits it too: ``from elsewhere import Order`` does
    not make that class restorable. With ``importing=False`` only modules that are loaded already are looked at.
    """
    name = f"{module}:{qualname}"
    if not STORED.fullmatch(name) or has_dunder(name):
        raise TargetNotAllowed(f"{name[:200]!r} is not the plain name of a class; no target policy allows it")
    if allow_type is None or not allow_type(module, qualname):
        raise TargetNotAllowed(
            f"{name} may not be restored here; annotate the parameter with the class, "
            f"or add its module to allow=[{module!r}]"
        )
    classes = _classes(module, qualname, importing)
    reached = ""
    for cls, step in zip(classes, qualname.split("."), strict=True):
        reached = f"{reached}.{step}" if reached else step
        origin = (importable_name(cls.__module__), cls.__qualname__)
        if origin != (importable_name(module), reached) and not allow_type(*origin):
            raise TargetNotAllowed(f"{name} is really {':'.join(origin)}, which may not be restored here")
    return classes[-1]


def _classes(module: str, qualname: str, importing: bool) -> list[type]:
    """The class and those around it, outermost first."""
    try:
        where = imported_module(module) if importing else loaded_module(module)
    except (Exception, SystemExit) as error:  # the module's own code may raise anything
        raise TargetNotFound(
            f"{module}:{qualname} cannot be imported on this node: {type(error).__name__}: {error}; "
            f"deploy it here, or keep the old name until its jobs are done"
        ) from error
    if where is None:
        raise TargetNotFound(f"{module}:{qualname} is not loaded in this process")
    *around, last = qualname.split(".")
    classes = classes_along(where, [*around, last])
    if classes is None:
        holders = classes_along(where, around)
        if holders is not None and last in vars(holders[-1] if holders else where):
            raise TargetNotAllowed(f"{module}:{qualname} is not a class")
        raise TargetNotFound(
            f"{module}:{qualname} cannot be found on this node: the module has no such class; deploy it here, "
            f"or keep the old name until its jobs are done"
        )
    return classes
