"""What ``manage.py ratchet worker`` runs: the project's scheduler, in a process where Django is set up and all jobs are known."""

from __future__ import annotations

import django
from django.apps import apps
from django.utils.module_loading import autodiscover_modules

if not apps.ready:
    django.setup()

from ratchet.contrib.django import scheduler

# Each app may declare jobs in its ``jobs`` module, and Django's tasks in ``tasks``.
autodiscover_modules("jobs", "tasks")

__all__ = ["scheduler"]
