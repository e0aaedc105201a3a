"""``ratchet dashboard``: jobs in a browser, on this machine."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import Refused
from ratchet.cli.http import Address
from ratchet.cli.output import Output
from ratchet.cli.people import person, user_name

Bind = Annotated[
    str,
    typer.Option(
        "--bind",
        metavar="HOST:PORT",
        help="Where to listen: a loopback address, or only a port; 0 is a free one.",
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Show pages only; nothing can be changed.")]

_LOOPBACK = ("127.", "::1", "localhost")


def dashboard(
    bind: Bind = "127.0.0.1:8080",
    read_only: ReadOnly = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """
    Serve the dashboard on this machine, until the command is stopped.

    It says where once it listens; with --json as a document, {"url": ...}. It asks nobody for a name, so it serves this machine only. For others, mount it in your application with a function
    that knows your users: ratchet.dashboard.asgi(scheduler, authorize=...).
    """
    host, port = Address.of(bind, "--bind")
    if not host.startswith(_LOOPBACK):
        raise Refused(
            f"--bind {bind}: without a function that knows your users, only this machine is served; listen on "
            f"127.0.0.1, or mount the dashboard in your application: ratchet.dashboard.asgi(scheduler, authorize=...)"
        )
    uvicorn = _uvicorn()
    with given.opened(url) as scheduler:
        made = import_module("ratchet.dashboard").asgi(scheduler, read_only=read_only)
        made.serves(person.get().name or user_name())
        config = uvicorn.Config(
            made,
            host=host,
            port=port,
            log_level="warning",
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # what a proxy says of an address is not believed
            timeout_graceful_shutdown=2,  # browsers that wait for hints do not hold the command up
        )
        server = uvicorn.Server(config)
        _announce(server, host, as_json=json)
        server.run()
        if not server.started:
            raise Refused(f"--bind: cannot listen on {bind}")


def _announce(server: Any, host: str, *, as_json: bool) -> None:
    """Say where it is once it listens: with port 0 nobody knows before."""
    startup = server.startup

    async def told(sockets: Any = None) -> None:
        await startup(sockets=sockets)
        for one in server.servers:
            port = one.sockets[0].getsockname()[1]
            name = f"[{host}]" if ":" in host else host
            if as_json:
                Output(as_json=True).document({"url": f"http://{name}:{port}/"})
                sys.stdout.flush()
            else:
                typer.echo(
                    f"dashboard on http://{name}:{port}/ (this machine only; Ctrl-C stops it)", err=True
                )

    server.startup = told


def _uvicorn() -> Any:
    try:
        return import_module("uvicorn")
    except ImportError as error:
        raise Refused("the dashboard needs an extra: pip install 'ratchet-jobs[dashboard]'") from error
