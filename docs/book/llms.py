"""``llms.txt``: the list of pages with a sentence each, and ``llms-full.txt``: the pages themselves, for language models."""

from __future__ import annotations

import re
from pathlib import Path

from docs.book.pages import Navigation

HEAD = """\
# Ratchet

> Durable background jobs for Python, kept in the database you already have: SQLite, PostgreSQL, MySQL/MariaDB or MongoDB. No broker.

Install with `pip install ratchet-jobs`, import `ratchet`. All pages in one file: [llms-full.txt](llms-full.txt).
"""


def write(source: Path, site: Path, navigation: Navigation) -> None:
    """Write both files into the site."""
    parts, texts = [HEAD], []
    for section in navigation.sections:
        rows = []
        for page in section.pages:
            text = (source / f"{page}.md").read_text(encoding="utf-8")
            rows.append(f"- [{_title(text)}]({page}.html): {_sentence(text)}")
            if not page.startswith("reference/api/"):
                texts.append(f"<!-- {page}.html -->\n\n{text.strip()}\n")
        if rows:
            parts.append(f"## {section.title}\n\n" + "\n".join(rows) + "\n")
    (site / "llms.txt").write_text("\n".join(parts), encoding="utf-8")
    (site / "llms-full.txt").write_text("\n".join(texts), encoding="utf-8")


def _title(text: str) -> str:
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found.group(1).replace("`", "") if found else "?"


def _sentence(text: str) -> str:
    """The first sentence of the page's first paragraph."""
    after = text.split("\n# ", 1)[-1].split("\n", 1)[-1]
    after = re.sub(r"^```.*?^```$", "", after, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n", after):
        block = " ".join(block.split())
        if block.count(" ") > 3 and block[0] not in "#|`<:!{*-" and not block.startswith("---"):
            plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", block)
            return re.split(r"(?<=[.!?]) ", plain)[0].rstrip(":")
    return _title(text)
