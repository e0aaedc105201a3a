"""``ratchet db``: create, upgrade, check and print the schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import EPILOG, ExitCode
from ratchet.cli.output import Output
from ratchet.config import resolve_options, shown_url
from ratchet.model.errors import SchemaChanged, SchemaOutOfDate, SchemaTooNew
from ratchet.model.store_url import StoreUrl
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.stores.sql.migrations import PRODUCTS, migrations_of, product_of

commands = typer.Typer(help="The schema: create, upgrade, check, show.", no_args_is_help=True, epilog=EPILOG)


@contextmanager
def _store(url: str) -> Iterator[JobStore]:
    store = open_store(url, resolve_options())
    try:
        yield store
    finally:
        store.close()


@commands.command(epilog=EPILOG)
def upgrade(url: given.Url = None, json: given.Json = False) -> None:
    """Create or upgrade the schema. Safe to run from several places at once, and again."""
    chosen = given.store_url(url)
    with _store(chosen) as store:
        applied = store.migrate()
    text = f"applied {', '.join(applied)}" if applied else "the schema is up to date"
    Output(as_json=json).say(text, store=shown_url(chosen), applied=applied)


@commands.command(epilog=EPILOG)
def status(url: given.Url = None, json: given.Json = False) -> None:
    """Say whether the schema fits this version of Ratchet; exit code 4 if it does not."""
    chosen = given.existing(given.store_url(url))
    problem: str | None = None
    with _store(chosen) as store:
        try:
            store.check_schema()
        except (SchemaOutOfDate, SchemaTooNew, SchemaChanged) as error:
            problem = str(error)
    text = f"{shown_url(chosen)}: {problem or 'the schema is up to date'}"
    Output(as_json=json).say(text, store=shown_url(chosen), ok=problem is None, problem=problem)
    if problem is not None:
        raise typer.Exit(ExitCode.UNHEALTHY)


def _scheme(url: str) -> str:
    """What stands before ://; a URL without it is refused, and not shown: it may hold a password."""
    return url.partition("://")[0] if "://" in url else StoreUrl.of(url).scheme


@commands.command(epilog=EPILOG)
def ddl(
    dialect: Annotated[
        str | None,
        typer.Option(
            "--dialect", help=f"{', '.join(PRODUCTS)}; default: that of the URL.", show_default=False
        ),
    ] = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Print the SQL that creates the schema, in order, for those who apply it with other tools."""
    chosen = product_of(dialect or _scheme(given.store_url(url)))
    scripts = migrations_of(chosen)
    out = Output(as_json=json)
    if json:
        out.document(
            {"dialect": chosen, "scripts": [{"name": each.name, "sql": each.text} for each in scripts]}
        )
        return
    for script in scripts:
        typer.echo(f"-- {script.name}\n{script.text}")
