"""A test database, as `manage.py test` makes one."""

import os
from collections.abc import Iterator

import django
import pytest
from django.test.runner import DiscoverRunner
from django.test.utils import setup_test_environment, teardown_test_environment

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup()


@pytest.fixture(scope="session", autouse=True)
def test_database() -> Iterator[None]:
    """Made before the first test, and dropped after the last."""
    runner = DiscoverRunner(verbosity=0, interactive=False)
    setup_test_environment()
    databases = runner.setup_databases()
    yield
    runner.teardown_databases(databases)
    teardown_test_environment()
