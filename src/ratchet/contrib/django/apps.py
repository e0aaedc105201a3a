"""The Django app."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate


class RatchetConfig(AppConfig):
    """Background jobs, kept in the project's database."""

    name = "ratchet.contrib.django"
    label = "ratchet"
    verbose_name = "Ratchet"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, and keep the tables up to date."""
        from ratchet.contrib.django.checks import check_settings

        checks.register(check_settings)
        post_migrate.connect(upgrade, sender=self)


def upgrade(using: str, **_: Any) -> None:
    """
    Make or upgrade the tables, if *using* is the alias that keeps the jobs.

    Run by our Django migration, and after each ``manage.py migrate``: a new version of Ratchet may have a newer schema, and
    Django would not look at a migration again that it has recorded.
    """
    from ratchet.contrib.django import scheduler

    if using == scheduler.database:
        scheduler.migrate()
        if not scheduler.running:
            scheduler.close()  # a test database is copied for parallel tests only while nobody is connected to it
