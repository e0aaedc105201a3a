"""The two files of pinned versions say the same, and neither says where packages come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = ROOT / "constraints.txt"
HASHES = ROOT / "constraints-hashes.txt"
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def test_hashes_are_of_the_versions_that_are_tested() -> None:
    """A version that moved without `make hashes` would be refused by whoever installs with hashes."""
    assert _pins(HASHES) == _pins(VERSIONS)


def test_every_version_has_a_hash() -> None:
    """A requirement without one is refused by pip; every other line is a hash, so that nothing else is hidden in the file."""
    blocks = re.split(r"\n(?=\S)", HASHES.read_text().rstrip("\n"))
    for pin, *hashes in (block.splitlines() for block in blocks if not block.startswith("#")):
        assert hashes, f"{pin} has no hash"
        assert all(HASH.match(line) for line in hashes), pin


@pytest.mark.parametrize("file", [VERSIONS, HASHES], ids=lambda file: file.name)
def test_no_address_is_pinned(file: Path) -> None:
    """Where packages come from is the choice of whoever installs them."""
    assert "://" not in file.read_text()
    assert "index" not in {line.split("=")[0].strip("- ") for line in file.read_text().splitlines()}


def _pins(file: Path) -> set[str]:
    lines = (line.split(" ")[0] for line in file.read_text().splitlines())
    return {_spelled(line) for line in lines if "==" in line and not line.startswith("#")}


def _spelled(pin: str) -> str:
    """A pin in the one spelling that all spellings of its name share."""
    name, version = pin.split("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"
