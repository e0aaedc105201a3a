"""The tables of Ratchet: made by its own migrator, in the database that the settings name."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations

from ratchet.contrib.django.apps import upgrade


def make_tables(apps: Any, schema_editor: Any) -> None:
    """Make them, if this is the alias that keeps the jobs."""
    upgrade(schema_editor.connection.alias)


class Migration(migrations.Migration):
    """Depends on nothing. Undoing it leaves the tables, and the jobs in them, where they are."""

    # Each script of the migrator is a transaction of its own, where the product can; one around all would lock SQLite.
    atomic = False
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [migrations.RunPython(make_tables, migrations.RunPython.noop)]
