"""When a process of a worker has run enough, and how sizes are written."""

from __future__ import annotations

import pytest

from ratchet.cli.worker.wear import Wear, parse_size
from ratchet.model.process import MemoryReport, resident_memory, shown_size


def test_nothing_wears_out_a_process_without_limits() -> None:
    """However much it has run and holds."""
    assert Wear(None, None, lambda: 10**9, lambda: 10**12).reason() is None


def test_the_limit_of_jobs_is_reached_and_that_of_memory_exceeded() -> None:
    """At the last job it is replaced; with exactly as much memory as it may have, not."""
    assert Wear(5, None, lambda: 4).reason() is None
    assert Wear(5, None, lambda: 5).reason() == "it has run 5 jobs, and --max-jobs is 5"
    assert Wear(None, 1024, lambda: 0, lambda: 1024).reason() is None
    assert (
        Wear(None, 1024, lambda: 0, lambda: 2048).reason()
        == "it holds 2 KiB of memory, and --max-memory is 1 KiB"
    )
    assert Wear(None, 1024, lambda: 0, lambda: None).reason() is None, "the system does not tell"


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 * 1024**2), ("1.5GiB", 3 * 1024**3 // 2), ("2 kb", 2048), ("700", 700), ("1T", 1024**4)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    """With or without a unit, in either case."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-1M", "0", "1X", "M"])
def test_what_is_no_size(text: str) -> None:
    """It says how one is written."""
    with pytest.raises(ValueError, match="is not a size such as 512M"):
        parse_size(text)


def test_sizes_are_shown() -> None:
    """With as many digits as people read."""
    assert [shown_size(size) for size in (0, 1023, 1024, 1536 * 1024, 300 * 1024**2, 5 * 1024**4)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "1.5 MiB",
        "300 MiB",
        "5.0 TiB",
    ]


def test_this_process_has_memory() -> None:
    """Some megabytes, and less than a machine has."""
    held = resident_memory()
    assert held is not None
    assert 1024**2 < held < 1024**4


def test_a_node_tells_its_memory_anew_only_when_it_has_changed_much() -> None:
    """A beat that writes nothing else does not write every page either."""
    held = [100 * 1024**2, 105 * 1024**2, 112 * 1024**2, 111 * 1024**2, 90 * 1024**2]
    told = MemoryReport(lambda: held.pop(0))
    assert [told.about() // 1024**2 for _ in range(5)] == [100, 100, 112, 112, 90]  # type: ignore[operator]
