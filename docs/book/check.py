"""Looks at the built site: no broken link, and nothing that a browser would fetch from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser fetches by itself; a link is followed by people only.
FETCHED = {
    ("script", "src"),
    ("img", "src"),
    ("source", "src"),
    ("iframe", "src"),
    ("link", "href"),
    ("use", "href"),
}


class Seen(HTMLParser):
    """The links, fetched files and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif (tag, name) in FETCHED:
                self.fetched.append(value)


def faults(site: Path) -> list[str]:
    """What is wrong with the site."""
    pages = {page: _seen(page) for page in site.rglob("*.html") if "_static" not in page.parts}
    found: list[str] = []
    for page, seen in pages.items():
        where = page.relative_to(site)
        for address in seen.fetched:
            if urlsplit(address).scheme not in ("", "data") or address.startswith("//"):
                found.append(f"{where} fetches {address}")
        for link in [*seen.links, *seen.fetched]:
            if not _leads_somewhere(link, page, pages):
                found.append(f"{where} has a broken link: {link}")
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        if "@import" in text or "url(http" in text or "url(//" in text:
            found.append(f"{style.relative_to(site)} fetches something from elsewhere")
    return sorted(set(found))


def _seen(page: Path) -> Seen:
    seen = Seen()
    seen.feed(page.read_text(encoding="utf-8"))
    return seen


def _leads_somewhere(link: str, page: Path, pages: dict[Path, Seen]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True  # leads to another site; the build is offline
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.exists():
        return False
    if target.is_dir():
        target = target / "index.html"
    return not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].anchors
