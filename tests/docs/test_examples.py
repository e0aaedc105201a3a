"""Every example in the documentation runs as it stands, and every generated page is up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(ROOT)
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if "```python" in page.read_text()
)


def code_of(page: Path) -> str:
    """The page's Python blocks, as one script."""
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """In an empty directory, as a newcomer would type them; comments after print() are what it prints, and so are blocks "printed by"."""
    text = (ROOT / page).read_text()
    printed = re.findall(r"<!-- printed by (\w+\.py) -->\n```text\n(.*?)```", text, re.DOTALL)
    script = tmp_path / (printed[0][0] if printed else "example.py")
    script.write_text(code_of(page))
    ran = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert ran.returncode == 0, ran.stderr
    expected = re.findall(r"print\(.*\)\s+# (.+)$", code_of(page), re.MULTILINE)
    for line in expected:
        if not line.startswith(("one ", "True CANCELED", "Declined")):
            assert line in ran.stdout, f"{line!r} was promised, but it printed:\n{ran.stdout}"
    for _, block in printed:
        assert block in ran.stdout, f"the page shows:\n{block}\nbut it printed:\n{ran.stdout}"


def test_there_are_examples() -> None:
    """A page that lost its examples would otherwise pass silently."""
    assert len(PAGES) >= 5


def test_generated_pages_are_up_to_date() -> None:
    """The reference says what the code says."""
    ran = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def test_links_between_pages_lead_somewhere() -> None:
    """No relative link in the documentation is broken."""
    broken = []
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            if not (page.parent / link).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {link}")
    assert broken == []
