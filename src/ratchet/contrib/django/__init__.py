"""
Ratchet as a Django app: ``INSTALLED_APPS += ["ratchet.contrib.django"]``.

`scheduler` is made from the settings when it is first imported. Jobs are kept in the database of one alias; what is
submitted inside ``atomic()`` of that alias is committed, and rolled back, with it. `RatchetBackend` is the backend for ``TASKS``.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ratchet.contrib.django.assembly import DjangoScheduler
    from ratchet.contrib.django.task_backend import RatchetBackend

    scheduler: DjangoScheduler

__all__ = ["RatchetBackend", "scheduler"]

_lock = threading.RLock()


def __getattr__(name: str) -> Any:
    """Django's settings cannot be read when this package is imported: it is named in them."""
    if name == "scheduler":
        return _made_once()
    if name == "RatchetBackend":
        from ratchet.contrib.django.task_backend import RatchetBackend

        return RatchetBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _made_once() -> Any:
    with _lock:
        if "scheduler" not in globals():
            from ratchet.contrib.django.assembly import DjangoScheduler
            from ratchet.contrib.django.settings import Settings

            globals()["scheduler"] = DjangoScheduler(Settings.read())
        return globals()["scheduler"]
