"""The pages of the site: which there are, in which order, and how their links read there."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

#: Pages that live beside the code, and what they are called on the site.
OUTSIDE = {
    "ARCHITECTURE.md": "extend/architecture.md",
    "CONTRIBUTING.md": "extend/contributing.md",
    "CHANGELOG.md": "reference/changelog.md",
    "SECURITY.md": "operate/security-policy.md",
    "examples/README.md": "examples/index.md",
}
#: Files of the repository that pages link to are shown on pages of their own, below this folder.
SOURCE = "source"
#: In the source of the home page: here go the sections, and the link to the API, whose pages exist only on the site.
MARK = "<!-- navigation -->"
API_MARK, API_LINK = "<!-- api -->", "[API](reference/api/index.md), "
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


@dataclass
class Section:
    """A part of the navigation: named pages in their order, then whatever else is in its folders."""

    title: str
    first: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    pages: list[str] = field(default_factory=list)


def sections() -> list[Section]:
    """The navigation, still without its pages. A page that is named in one section stays out of the others."""
    return [
        Section("Start", ("tutorial/first-job", "tutorial/web-application", "tutorial/production"), ("tutorial",)),
        Section(
            "How to",
            (
                "how-to/transactions", "how-to/unique", "how-to/errors", "how-to/when", "how-to/composition", "how-to/gates",
                "how-to/long-jobs", "how-to/stopping", "how-to/asyncio", "how-to/events", "how-to/listings", "how-to/testing", "how-to/django", "how-to/web",
            ),
            ("how-to",),
        ),
        Section("Examples", ("examples/gallery", "examples/index"), ("examples",)),
        Section(
            "Operate",
            (
                "operate/production", "how-to/workers", "operate/deployment", "how-to/deployment", "how-to/sizing",
                "how-to/deploys", "how-to/upgrades",
                "operate/troubleshooting", "how-to/nothing-runs", "how-to/operate", "how-to/dashboard", "how-to/metrics",
                "how-to/alerts", "how-to/tracing", "how-to/audit", "how-to/encryption",
            ),
            ("operate",),
        ),
        Section(
            "Explanation",
            ("explanation/guarantees", "explanation/why-no-broker", "explanation/claiming", "explanation/resilience", "explanation/comparison", "explanation/performance", "explanation/scale"),
            ("explanation",),
        ),
        Section("Coming from", ("coming-from/celery",), ("coming-from",)),
        Section(
            "Extend",
            (
                "how-to/parts", "extend/submissions", "extend/runs", "extend/nodes", "extend/store", "how-to/simulate",
                "extend/architecture", "extend/contributing",
            ),
            ("extend",),
        ),
        Section(
            "Reference",
            ("reference/api/index", "reference/cli", "reference/options", "reference/metrics", "reference/events", "reference/errors", "reference/states", "reference/stores", "reference/versions"),
            ("reference",),
        ),
        Section("Decisions", (), ("decisions",)),
    ]  # fmt: skip


class Navigation:
    """Every page in exactly one section."""

    def __init__(self, pages: list[str]) -> None:
        self.sections = sections()
        named = {page for section in self.sections for page in section.first}
        for section in self.sections:
            section.pages = [page for page in section.first if page in pages]
            section.pages += sorted(
                page
                for page in pages
                if page not in named and PurePosixPath(page).parts[0] in section.folders
            )
        found = {page for section in self.sections for page in section.pages}
        #: Pages in a folder that no section has: the build refuses them.
        self.lost = sorted(set(pages) - found - {"index"})

    def as_markdown(self) -> str:
        """The sections as toctrees."""
        blocks = []
        for section in self.sections:
            shown = [
                page
                for page in section.pages
                if not page.startswith("reference/api/") or page.endswith("/index")
            ]
            if shown:
                listed = "\n".join(shown)
                blocks.append(f"```{{toctree}}\n:hidden:\n:caption: {section.title}\n\n{listed}\n```\n")
        return "\n".join(blocks)


def gather(into: Path) -> list[str]:
    """Copy the pages and their pictures to *into*, with links that lead to other pages of the site; the names of the pages."""
    shutil.rmtree(into, ignore_errors=True)
    sources = {
        page.relative_to(ROOT).as_posix(): page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")
    }
    sources |= {source: name for source, name in OUTSIDE.items() if (ROOT / source).exists()}
    shown: dict[str, str] = {}
    for source, name in sources.items():
        text = _with_links(source, name, (ROOT / source).read_text(encoding="utf-8"), sources, shown)
        _write(into / name, text)
    for picture in [*DOCS.rglob("*.png"), *DOCS.rglob("*.svg")]:
        target = into / picture.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, target)
    for source, name in shown.items():
        _write(into / name, _source_page(source))
    return sorted(name.removesuffix(".md") for name in sources.values())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _with_links(source: str, name: str, text: str, sources: dict[str, str], shown: dict[str, str]) -> str:
    """The page with each link to a file of the repository turned into one to the page that shows it on the site."""

    def turned(found: re.Match[str]) -> str:
        before, link, after = found.groups()
        aim = (ROOT / source).parent.joinpath(link).resolve()
        if not aim.is_relative_to(ROOT) or not aim.exists():
            return found.group()  # Sphinx says what is wrong with it
        path = aim.relative_to(ROOT).as_posix()
        if path in sources:
            return before + _relative(sources[path], name) + after
        if aim.is_dir():
            inside = sorted(one for one in sources if one.startswith(f"{path}/"))
            return before + _relative(sources[inside[0]], name) + after if inside else found.group()
        if aim.suffix in (".png", ".svg") and aim.is_relative_to(DOCS):
            return before + _relative(aim.relative_to(DOCS).as_posix(), name) + after
        shown[path] = f"{SOURCE}/{path.replace('/', '-')}.md"
        return before + _relative(shown[path], name) + after

    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(turned, part) for part in parts)


def _relative(target: str, page: str) -> str:
    up = "../" * (len(PurePosixPath(page).parts) - 1)
    return up + target


LANGUAGES = {
    ".py": "python",
    ".toml": "toml",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".json": "json",
    ".sql": "sql",
    ".sh": "sh",
}


def _source_page(path: str) -> str:
    """A file of the repository, to read."""
    language = LANGUAGES.get(Path(path).suffix, "text")
    code = (ROOT / path).read_text(encoding="utf-8").rstrip()
    return f"---\norphan: true\n---\n\n# {path}\n\n````````{language}\n{code}\n````````\n"
