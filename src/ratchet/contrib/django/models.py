"""
What Django's admin and its permissions know a job by. There is no such table: jobs are kept in Ratchet's own, and read through its API.

Django tells only apps that have this module that a migration is over.
"""

from __future__ import annotations

from typing import Any

from django.db import models


class NoRows(models.Manager[Any]):
    """Finds nothing, and asks nobody: whatever walks over all models (``dumpdata``) passes by."""

    def get_queryset(self) -> Any:
        """An empty one."""
        return super().get_queryset().none()


class Job(models.Model):
    """A name for permissions (``ratchet.view_job``, ``ratchet.change_job``) and for the pages of the admin."""

    id = models.UUIDField(primary_key=True)

    objects = NoRows()

    class Meta:
        """Django makes no table for it."""

        managed = False
        base_manager_name = "objects"
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return f"job {self.pk}"
