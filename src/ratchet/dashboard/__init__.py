"""
The dashboard: see jobs and act on them in a browser. `asgi` and `wsgi` make the application; ``ratchet dashboard`` serves it.

Enter at `app.Dashboard`: `guard` decides who may come in, `pages` reads what a page shows, `verbs` carries out what a
person asked for, `drawing` makes the SVG, `live` tells browsers that something has changed. Everything is read and done
through the public API of the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ratchet.model.errors import ConfigurationError
from ratchet.scheduler import Scheduler

if TYPE_CHECKING:
    from ratchet.dashboard.app import Dashboard
    from ratchet.dashboard.guard import Authorize
    from ratchet.dashboard.wsgi_dashboard import WsgiDashboard


def asgi(
    scheduler: Scheduler,
    *,
    authorize: Authorize | None = None,
    read_only: bool = False,
    prefix: str | None = None,
    hosts: Sequence[str] | None = None,
) -> Dashboard:
    """
    The dashboard as an ASGI application, to be mounted in FastAPI, Starlette, Litestar or Django.

    *authorize* is called as ``authorize(request, permission)`` for each page and action; it returns the name of the
    person, or None to refuse, and may be a coroutine function. Without it only this machine is served. *prefix* is the
    path it is mounted at, where the framework does not tell. *hosts*: the only names that it answers to.
    """
    _require_extra()
    from ratchet.dashboard.app import Dashboard

    return Dashboard(scheduler, authorize=authorize, read_only=read_only, prefix=prefix, hosts=hosts)


def wsgi(
    scheduler: Scheduler,
    *,
    authorize: Authorize | None = None,
    read_only: bool = False,
    prefix: str | None = None,
    hosts: Sequence[str] | None = None,
) -> WsgiDashboard:
    """
    The same as a WSGI application, for Flask and for Django under WSGI. Pages that are open are polled.

    The request that *authorize* gets is Starlette's too; ``request.scope["wsgi.environ"]`` is the environment.
    """
    _require_extra()
    from ratchet.dashboard.app import Dashboard
    from ratchet.dashboard.wsgi_dashboard import WsgiDashboard

    made = Dashboard(
        scheduler, authorize=authorize, read_only=read_only, prefix=prefix, hosts=hosts, streams=False
    )
    return WsgiDashboard(made)


def _require_extra() -> None:
    try:
        import jinja2
        import starlette  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise ConfigurationError(
            f"the dashboard needs an extra ({error.name} is missing): pip install 'ratchet-jobs[dashboard]'"
        ) from error
    del jinja2


__all__ = ["asgi", "wsgi"]
