"""``ratchet tck``: test a store against every contract."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from ratchet.cli.exit_codes import ExitCode
from ratchet.cli.output import Output
from ratchet.config import URL_VARIABLE
from ratchet.model.errors import MissingDriver


def tck(
    harness: Annotated[
        str,
        typer.Argument(metavar="HARNESS", help="The harness, as package.module:Class.", show_default=False),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PYTEST_ARGS]...", help="Further arguments for pytest, after --.", show_default=False
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help=f"The store; the harness reads it from ${URL_VARIABLE}.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document; pytest's own output goes to stderr.")
    ] = False,
) -> None:
    """Test a store against every contract of the conformance kit."""
    try:
        from ratchet.tck.runner import run
    except ModuleNotFoundError as error:
        raise MissingDriver(
            f"the conformance kit needs {error.name}: pip install pytest hypothesis"
        ) from None
    if url is not None:
        os.environ[URL_VARIABLE] = url
    if not json:
        sys.exit(run(harness, arguments or ()))
    with contextlib.redirect_stdout(sys.stderr):
        code = run(harness, arguments or ())
    Output(as_json=True).document({"harness": harness, "ok": code == 0, "pytest_exit_code": code})
    if code:
        raise typer.Exit(ExitCode.ERROR)
