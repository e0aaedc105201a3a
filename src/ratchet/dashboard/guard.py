"""
Who may come in: the checks of a request, before anything is read or done.

Without an ``authorize`` function only this machine is served: the connection must come from a loopback address, and the
name in the request must be one of this machine too. A page elsewhere whose name was pointed at 127.0.0.1 (DNS rebinding)
has another name, and what a proxy passes on carries its mark.
"""

from __future__ import annotations

import inspect
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.requests import Request

from ratchet.dashboard.threads import in_thread

#: Called with the request and the permission; the name of the person, or None.
Authorize = Callable[[Request, str], "str | Awaitable[str | None] | None"]

#: The permission to look at pages; each action has its own, such as ``jobs.retry``.
VIEW: Final = "view"
#: Who acts where nobody is asked for a name.
LOCAL: Final = "local"

SAFE: Final = ("GET", "HEAD")
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")

#: On every answer. Scripts and styles come from files of ours only; nobody may frame a page.
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # not no-referrer: with that, browsers send forms with "Origin: null"
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Forbidden(Exception):
    """The request is refused; the message says why, and what would help."""


class Guard:
    """Decides whether a request is answered, and in whose name."""

    def __init__(self, authorize: Authorize | None, hosts: Sequence[str] | None) -> None:
        self._authorize = authorize
        #: Who it is where nobody is asked for a name.
        self.local = LOCAL
        self._hosts = None if hosts is None else {host.lower() for host in hosts}

    def check(self, request: Request) -> None:
        """`Forbidden` if the request comes from where it must not."""
        name = _host_name(request.headers.get("host", ""))
        if self._hosts is not None and name not in self._hosts:
            raise Forbidden(f"this dashboard does not answer to the name {name!r}")
        if self._authorize is None:
            _require_loopback(request, name, named=self._hosts is not None)
        if request.method not in SAFE:
            _require_same_origin(request)

    async def who(self, request: Request, permission: str) -> str | None:
        """The name of the person if they have *permission*; None if not."""
        if self._authorize is None:
            return self.local
        if inspect.iscoroutinefunction(self._authorize):
            found = await self._authorize(request, permission)
        else:
            # It may ask a database or a session store.
            found = await in_thread(self._authorize, request, permission)
            if inspect.isawaitable(found):
                found = await found
        # True names nobody: such a function says yes or no, and the log should say who.
        return found if isinstance(found, str) and found else None


def _require_loopback(request: Request, name: str, *, named: bool) -> None:
    advice = "pass authorize= to serve others"
    client = request.client.host if request.client is not None else ""
    if not _is_loopback(client):
        raise Forbidden(f"only this machine is served, and the request came from {client!r}; {advice}")
    if not named and name != "localhost" and not _is_loopback(name):
        raise Forbidden(
            f"only this machine is served, and the request was for {name!r}; use localhost, or {advice}"
        )
    if any(header in request.headers for header in _FORWARDED):
        raise Forbidden(f"only this machine is served, and the request came through a proxy; {advice}")


def _require_same_origin(request: Request) -> None:
    """Browsers say where a request was made; a form on somebody else's page cannot say that it was made here."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site != "same-origin":
            raise Forbidden(f"a change must be asked for on a page of this dashboard, not {site}")
        return
    origin = request.headers.get("origin")
    if origin is None:
        raise Forbidden(
            "a change needs the header Sec-Fetch-Site: same-origin, or an Origin that is the host of this dashboard"
        )
    _, _, host = origin.partition("://")
    if not host or host.lower() != request.headers.get("host", "").lower():
        raise Forbidden(f"a change must be asked for on a page of this dashboard, not of {origin!r}")


def _host_name(host: str) -> str:
    """``[::1]:8080`` and ``localhost:8080`` without their ports."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
