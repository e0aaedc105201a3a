"""
Real servers for the tests.

Each server is resolved in this order: a URL in the environment (``RATCHET_TEST_POSTGRESQL_URL``, …),
programs that are installed, programs installed now. Private instances run on a free loopback port,
with their data in a temporary directory, as an unprivileged user, and end with the test run.

Tests take the shared servers through the fixtures in ``tests/conftest.py``. A test that stops or
kills its server must have one of its own: ``with PostgreSQL() as server: ...``.
"""
