"""Says once that a connection to another machine is not protected, where nobody has said that this is meant."""

from __future__ import annotations

import ipaddress
import logging
import threading

log = logging.getLogger("ratchet.stores")

_said: set[str] = set()
_saying = threading.Lock()


def is_local(host: str) -> bool:
    """True for this machine: a socket, a loopback address or its name."""
    name = host.strip("[]").lower()
    if not name or name.startswith(("/", "@")) or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def note_unverified(server: str, host: str, verify: str, accept: str) -> None:
    """
    Log that nobody checks who answers at *host*: once in a process, and not for this machine.

    At INFO, which workers show: a command that people type every minute should not repeat it. *verify* is what to add
    to the URL, *accept* what says that it is meant.
    """
    if is_local(host):
        return
    with _saying:
        if f"{server} {host}" in _said:
            return
        _said.add(f"{server} {host}")
    log.info(
        "the certificate of %s at %s is not checked, and the connection may be unencrypted; add %s to the URL, "
        "or %s to say that it is meant",
        server,
        host,
        verify,
        accept,
    )
