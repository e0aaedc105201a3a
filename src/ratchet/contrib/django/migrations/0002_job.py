"""Tells Django of the model that has no table, so that ``makemigrations`` has nothing to add."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes no database."""

    dependencies: ClassVar[list[Any]] = [("ratchet", "0001_tables")]
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="Job",
            fields=[("id", models.UUIDField(primary_key=True, serialize=False))],
            options={
                "managed": False,
                "base_manager_name": "objects",
                "default_permissions": ("view", "change"),
            },
        )
    ]
