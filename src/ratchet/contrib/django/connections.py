"""
Django's connections around each run: closed as Django closes them around a request.

Found by its name, so the children of the process lane run it too. They import this module before the module of a job: so this
is where Django is set up in a process that nobody has set it up in.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import django
from asgiref.sync import SyncToAsync
from django.apps import apps
from django.db import connections

from ratchet.api.context import JobContext

# While ``setup()`` imports the apps, one of them may import jobs, and thereby this module: it must not be called again then.
if not (apps.ready or apps.loading) and os.environ.get("DJANGO_SETTINGS_MODULE"):
    django.setup()


def fresh_connections(ctx: JobContext) -> Iterator[None]:
    """Close connections that are broken, or older than ``CONN_MAX_AGE``, before the run and after it."""
    outer = {id(wrapper) for wrapper in connections.all(initialized_only=True) if wrapper.in_atomic_block}
    _close_old(outer)
    try:
        yield
    finally:
        _close_old(outer)


def _close_old(outer: set[int]) -> None:
    """*outer*: connections whose transaction surrounds the run, as in a ``TestCase``; Django would close them too."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        _close_here(outer)
        if not getattr(SyncToAsync.single_thread_executor, "_threads", ()):
            return
    # Async code uses the ORM on this one thread. It takes one thing after the other: what the job does comes after this, and
    # what another job does is not interrupted.
    SyncToAsync.single_thread_executor.submit(_close_here, set())


def _close_here(outer: set[int]) -> None:
    for wrapper in connections.all(initialized_only=True):
        if id(wrapper) in outer:
            continue
        if wrapper.in_atomic_block:
            # The run was interrupted on its way out of the block. The next run on this thread must not be part of it.
            wrapper.in_atomic_block = False
            wrapper.close()
        wrapper.close_if_unusable_or_obsolete()
