"""Every part that `Scheduler` takes has a worked example in the docs, and the page about writing a store leads to a finished run of the kit."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet import Scheduler
from ratchet.tck.suite import listed_contracts
from tests.docs.test_examples import PAGES, ROOT

EXTEND = ROOT / "docs" / "extend"
#: What is set, not replaced: these have pages of their own.
SETTINGS = {"self", "url", "allow", "imports", "options"}
PARTS = sorted(set(inspect.signature(Scheduler.__init__).parameters) - SETTINGS)
#: Protocols that nobody implements by themselves, and why.
INNER = {
    "Sender": "made by a Medium, and shown with it",
    "Receiver": "made by a Medium, and shown with it",
    "Poster": "a Sender that is faster, for PostgreSQL",
    "TracedAttempt": "made by a Tracer, and shown with it",
    "ConstraintDetector": "a part of a SQL dialect, which CONTRIBUTING.md explains",
    "SurroundingTransaction": "what the integration of a framework gives; Django's is the only one",
    "Shield": "what a run gives to a store's code",
}
CHECKED = re.compile(r"print\(.*\)\s+# \S")


def sections() -> dict[str, str]:
    """The text below each heading that is the name of a keyword, on all pages."""
    found: dict[str, str] = {}
    for page in sorted(EXTEND.glob("*.md")):
        for name, text in re.findall(
            r"^## `(\w+)`\n(.*?)(?=^## |\Z)", page.read_text(), re.DOTALL | re.MULTILINE
        ):
            assert name not in found, f"{name} has two headings"
            found[name] = text
    return found


@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_a_worked_example(part: str) -> None:
    """A heading, a few sentences that say what happens when it raises, and code that uses it and whose output is checked."""
    text = sections().get(part)
    assert text is not None, (
        f"Scheduler takes {part}=, but no page of docs/extend has the heading ## `{part}`"
    )
    prose, _, _ = text.partition("```python")
    assert "raise" in prose, f"the section {part} does not say what happens when it raises"
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert re.search(rf"\b(Scheduler|manual_scheduler)\([^\n]*\b{part}=", code), f"no example passes {part}="
    assert CHECKED.search(code), f"the example of {part} prints nothing that is checked"


def protocols() -> dict[str, str]:
    """The Protocols of `ratchet.spi` and the modules that they are in; those of the nouns of a store count as the one `JobStore`."""
    found = {"JobStore": "store", "SendingStore": "store"}
    for module in sorted((ROOT / "src" / "ratchet" / "spi").glob("*.py")):
        for name in re.findall(r"^class (\w+)\(.*\bProtocol\):", module.read_text(), re.MULTILINE):
            found[name] = module.stem
    return found


@pytest.mark.parametrize("name", sorted(protocols()))
def test_an_interface_is_explained(name: str) -> None:
    """Each Protocol is named on the pages about extending, in the table of parts, or where dialects are explained."""
    if name in INNER:
        return
    pages = [*EXTEND.glob("*.md"), ROOT / "docs" / "how-to" / "parts.md"]
    assert any(re.search(rf"`(ratchet\.spi\.[\w.]+)?{name}`", page.read_text()) for page in pages)


def test_what_is_not_explained_is_there() -> None:
    """An exemption for a Protocol that is gone is removed."""
    assert set(INNER) <= set(protocols())


def test_no_section_is_about_a_part_that_is_gone() -> None:
    """A keyword that was renamed or removed takes its section along."""
    assert sorted(sections()) == PARTS


def test_the_examples_are_run() -> None:
    """Their pages are among those whose code the tests run."""
    assert {page.relative_to(ROOT) for page in EXTEND.glob("*.md")} <= set(PAGES)


def test_the_kit_accepts_the_harness_of_the_page(tmp_path: Path) -> None:
    """Saved under the name that the page gives it, with the page's own last command: every contract holds."""
    page = EXTEND / "store.md"
    (console,) = re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    command = console.strip().splitlines()[-1].removeprefix("$ ratchet ").split()
    module = command[1].partition(":")[0]
    (harness,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        if "Harness" in block
    )
    (tmp_path / f"{module}.py").write_text(harness)
    done = subprocess.run(
        [sys.executable, "-m", "ratchet", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    total = len(listed_contracts())
    assert re.search(rf"^{total} of {total} contracts, \d+ skipped$", done.stdout, re.MULTILINE)
