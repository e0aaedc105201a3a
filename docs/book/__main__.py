"""
Builds the site into ``build/site``, or where the first argument says; every warning is an error.

Each version has its folder there; other versions that are in the place stay, and every page offers them. Further arguments are tags or commits whose
pages are built first, each with the builder of its time: ``python -m docs.book build/site v0.2.0 v0.3.0``.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.book import api, check, llms, states, versions
from docs.book.pages import API_LINK, API_MARK, MARK, ROOT, Navigation, gather

HERE = Path(__file__).parent


def build(site: Path, source: Path) -> list[str]:
    """Build the site; what is wrong with it."""
    shutil.rmtree(site, ignore_errors=True)
    pages = gather(source)
    pages += api.write_pages(source)
    navigation = Navigation(pages)
    if navigation.lost:
        return [f"{page}.md is in no section: see docs/book/pages.py" for page in navigation.lost]
    home = source / "index.md"
    text = home.read_text().replace(API_MARK, API_LINK)
    home.write_text(text.replace(MARK, navigation.as_markdown()))
    states.draw(source / "reference" / "states.md")
    os.environ["RATCHET_BOOK_STATIC"] = str(HERE / "static")
    os.environ["RATCHET_BOOK_TEMPLATES"] = str(HERE / "templates")
    os.environ.setdefault("TZ", "UTC")
    arguments = ["-q", "-W", "--keep-going", "-j", "2", "-d", str(source / ".doctrees")]
    if build_main([*arguments, "-b", "html", "-c", str(HERE), str(source), str(site)]):
        return ["Sphinx has warnings, see above"]
    llms.write(source, site, navigation)
    versions.write(site.parent)
    return check.faults(site)


def main() -> int:
    """Build it, say how large it is, and fail if anything is wrong."""
    began = time.monotonic()
    place = (Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    for ref in sys.argv[2:]:
        versions.build_at(ref, place)
    site = place / versions.label()
    faults = build(site, place.with_name(place.name + "-source"))
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    if faults:
        return 1
    files = [path for path in site.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 2**20
    html = sum(path.suffix == ".html" for path in files)
    sys.stdout.write(
        f"{place}/index.html: version {site.name}, {html} pages, {size:.1f} MiB, no warning, no broken link, {time.monotonic() - began:.0f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
