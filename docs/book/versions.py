"""The versions of the site: a folder for each, and beside the folders the list from which every page of every version makes its switch."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from docs.book.pages import ROOT

#: What is not released yet.
NEXT = "next"
VARIABLE = "RATCHET_BOOK_VERSION"
NUMBERED = re.compile(r"\d+(\.\d+)+")

HOME = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={version}/index.html">
<title>Ratchet</title>
<p><a href="{version}/index.html">Ratchet {version}</a></p>
</html>
"""


def label() -> str:
    """The version that these pages are about: what is asked for, else the newest heading of the changelog."""
    asked = os.environ.get(VARIABLE)
    if asked:
        return asked
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1] if heading and NUMBERED.fullmatch(heading[1]) else NEXT


def built(site: Path) -> list[str]:
    """The versions whose folders are in *site*: the next one, then releases, newest first."""
    found = [folder.name for folder in site.iterdir() if (folder / "index.html").exists()]
    releases = [name for name in found if NUMBERED.fullmatch(name)]
    releases.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    return [NEXT] * (NEXT in found) + releases


def write(site: Path) -> None:
    """Write what stands beside the folders: the list of versions, a home page that leads to the newest release, and its ``llms.txt``."""
    there = built(site)
    listed = [
        {
            "version": version,
            "released": version != NEXT,
            "pages": sorted(
                page.relative_to(site / version).with_suffix("").as_posix()
                for page in (site / version).rglob("*.html")
                if "_static" not in page.parts
            ),
        }
        for version in there
    ]
    (site / "versions.js").write_text(f"window.ratchetVersions = {json.dumps(listed)};\n", encoding="utf-8")
    home = next((version for version in there if version != NEXT), NEXT)
    (site / "index.html").write_text(HOME.format(version=home), encoding="utf-8")
    pages = (site / home / "llms.txt").read_text(encoding="utf-8")
    (site / "llms.txt").write_text(pages.replace("](", f"]({home}/"), encoding="utf-8")


def build_at(ref: str, site: Path, repository: Path = ROOT) -> None:
    """Build the pages of an earlier commit or tag, with the builder and the package of that time, into its folder of *site*."""
    archive = subprocess.run(["git", "archive", ref], cwd=repository, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="ratchet-book-") as place:
        tree = Path(place)
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(tree, filter="data")
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), VARIABLE: ref.removeprefix("v")}
        subprocess.run([sys.executable, "-m", "docs.book", str(site)], cwd=tree, env=environment, check=True)
