"""The fields that a running node puts on log records never get into the way of an application's own."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Iterator
from io import StringIO

import pytest

from ratchet import JobContext, Scheduler
from ratchet.stores.memory import MemoryStore

logger = logging.getLogger("tests.log_fields")


def speak() -> str:
    logger.warning("in a job")
    logger.warning("with a name of its own", extra={"job_id": "mine", "attempt": 99, "color": "red"})
    return str(JobContext.current().job_id)


@pytest.fixture
def lines() -> Iterator[StringIO]:
    """What is logged here, with the fields in the format."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(job_id)s %(attempt)s %(message)s"))
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def test_names_that_an_application_uses_too(lines: StringIO) -> None:
    """`extra=` with our names is no error, inside a job and outside of one, and what it says wins."""
    with Scheduler(store=MemoryStore(), allow=[__name__]) as scheduler:
        logger.warning("outside", extra={"node_id": "n", "job_id": 7})
        job_id = scheduler.enqueue_now(speak).result(timeout=20)
    assert lines.getvalue().splitlines() == [
        "7 None outside",
        f"{job_id} 1 in a job",
        "mine 99 with a name of its own",
    ]


def test_names_of_the_standard_library_stay_refused() -> None:
    """What logging itself refuses to overwrite it still refuses."""
    with Scheduler(store=MemoryStore(), allow=[__name__]):
        with pytest.raises(KeyError, match="overwrite 'name'"):
            logger.warning("x", extra={"name": "y"})


def test_records_can_be_copied_and_sent() -> None:
    """Handlers copy records and send them to other processes."""
    with Scheduler(store=MemoryStore(), allow=[__name__]):
        record = logger.makeRecord("a", logging.INFO, "f", 1, "text", (), None, extra={"attempt": 3})
    for other in (copy.copy(record), pickle.loads(pickle.dumps(record))):
        assert (other.attempt, other.job_id, other.getMessage()) == (3, None, "text")
