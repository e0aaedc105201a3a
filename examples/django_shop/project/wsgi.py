"""The shop, and the dashboard beside it."""

import os
from collections.abc import Callable, Iterable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

from django.core.wsgi import get_wsgi_application

shop = get_wsgi_application()  # sets Django up, so it comes before what needs the settings

from ratchet import dashboard  # noqa: E402 - Django is set up first
from ratchet.contrib.django import scheduler  # noqa: E402 - the same

PREFIX = "/dashboard"
jobs = dashboard.wsgi(scheduler)  # without authorize= it serves this machine only


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Everything below PREFIX is the dashboard's."""
    path = environ["PATH_INFO"]
    if path == PREFIX or path.startswith(f"{PREFIX}/"):
        environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + PREFIX
        environ["PATH_INFO"] = path.removeprefix(PREFIX)
        return jobs(environ, start_response)
    return shop(environ, start_response)
