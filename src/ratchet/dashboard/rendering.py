"""Turns what was read into HTML: the templates, what they can call, and the two files that browsers fetch."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import UUID

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from ratchet.api.observe.graphs import JobGraph
from ratchet.dashboard.drawing.bars import hour_bars, run_bars, share_bar
from ratchet.dashboard.drawing.curves import CHARTS, chart, greatest
from ratchet.dashboard.drawing.graphs import drawn, folded
from ratchet.dashboard.drawing.states import state_diagram
from ratchet.dashboard.drawing.svg import cut
from ratchet.dashboard.filters import address
from ratchet.dashboard.orders import Confirmation
from ratchet.dashboard.pages import Page
from ratchet.dashboard.pages.question import path_of
from ratchet.dashboard.text import NOTHING, ago, count, finalized, jobs_of, pretty, shown, span
from ratchet.dashboard.verbs import SAID
from ratchet.model.composition import Graph
from ratchet.model.durations import format_duration
from ratchet.model.process import shown_size

HERE = Path(__file__).parent
FILES = {"dashboard.css": "text/css", "dashboard.js": "text/javascript", "icon.svg": "image/svg+xml"}

#: Pages of the navigation.
NAVIGATION = (
    ("Overview", "/"),
    ("Jobs", "/jobs"),
    ("Dead letters", "/dead-letters"),
    ("Queues", "/queues"),
    ("Limits", "/limits"),
    ("Schedules", "/schedules"),
    ("Batches", "/batches"),
    ("Nodes", "/nodes"),
    ("Audit", "/audit"),
)


@dataclass
class Visit:
    """One request as templates see it: who asks, where links lead, what may be done."""

    request: Request
    base: str
    path: str
    read_only: bool
    streams: bool
    who: str = ""
    permissions: frozenset[str] = field(default_factory=frozenset)

    @property
    def wants_json(self) -> bool:
        """True if the request prefers JSON to HTML."""
        accept = self.request.headers.get("accept", "")
        return _quality(accept, "application/json") > _quality(accept, "text/html")

    @property
    def here(self) -> str:
        """The page with its words, without those that tell of an action."""
        pairs = [pair for pair in self.request.query_params.multi_items() if pair[0] not in ("did", "n")]
        return address(self.path, pairs)

    @property
    def said(self) -> str | None:
        """What was just done, in words of ours: the address holds only which verb and how many."""
        words = self.request.query_params
        text, number = SAID.get(words.get("did", "")), words.get("n", "")
        if text is None:
            return None
        if number.isdecimal() and len(number) < 9 and int(number) > 1:
            return f"{text}: {int(number):,}."
        return f"{text}."

    def link(self, target: str) -> str:
        """The address of a page of this dashboard, wherever it is mounted."""
        return f"{self.base}{target}"

    def may(self, permission: str) -> bool:
        """True if the person may do this; the page then shows how."""
        return permission in self.permissions

    def with_words(self, **changed: object) -> str:
        """The page with other words: None takes one out; the position in a listing is lost."""
        kept = [
            (name, value)
            for name, value in self.request.query_params.multi_items()
            if name not in changed and name not in ("did", "n", "cursor")
        ]
        return self.link(address(self.path, [*kept, *changed.items()]))

    def without(self, name: str, value: str) -> str:
        """The page without one criterion."""
        kept = [
            pair
            for pair in self.request.query_params.multi_items()
            if pair != (name, value) and pair[0] not in ("did", "n", "cursor")
        ]
        return self.link(address(self.path, kept))


def _quality(accept: str, kind: str) -> float:
    """How much a request wants a kind of answer."""
    best = 0.0
    for part in accept.split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        if name == kind:
            best = max(best, quality)
    return best


class Rendering:
    """The templates and files, read once."""

    def __init__(self) -> None:
        self._files = {name: (HERE / "static" / name).read_bytes() for name in FILES}
        self._version = hashlib.blake2b(b"".join(self._files.values()), digest_size=6).hexdigest()
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=finalized,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(
            navigation=NAVIGATION,
            version=self._version,
            path_of=path_of,
            address=address,
            state_diagram=state_diagram,
            run_bars=run_bars,
            hour_bars=hour_bars,
            share_bar=share_bar,
            charts=CHARTS,
            chart=chart,
            greatest=greatest,
        )
        self._environment.filters.update(
            span=span,
            count=count,
            jobs_of=jobs_of,
            pretty=pretty,
            flat=_flat,
            duration=format_duration,
            rate=_rate,
            cut=_cut,
            shown=shown,
            said=_said,
            timed=_timed,
            size=shown_size,
        )

    def page(self, page: Page, data: dict[str, Any], visit: Visit, *, fragment: bool) -> str:
        """A page, or only what is inside of its frame."""
        more = {"drawing": _drawing(data, visit)} if page.name == "graph" else {}
        return self._render(f"{page.name}.html", visit, fragment, **{**data, **more})

    def confirmation(self, asked: Confirmation, words: str, visit: Visit) -> str:
        """The question before many jobs are changed."""
        return self._render("confirm.html", visit, False, asked=asked, words=words)

    def problem(self, status: HTTPStatus, text: str, back: str, visit: Visit, *, fragment: bool) -> str:
        """What went wrong, and where to go on."""
        return self._render(
            "problem.html", visit, fragment, title=status.phrase, code=int(status), text=text, back=back
        )

    def _render(self, name: str, visit: Visit, fragment: bool, /, **data: Any) -> str:
        now = datetime.now(UTC)
        return self._environment.get_template(name).render(
            **data,
            visit=visit,
            link=visit.link,
            layout="fragment.html" if fragment else "frame.html",
            now=now,
            # A part is only sent to the script, which says how long ago it was: it must not differ from second to second.
            time=lambda moment: _time(moment, None if fragment else now),
            exact=lambda moment: _timed(moment.isoformat()),
        )

    def file(self, name: str, request: Request) -> Response:
        """The stylesheet, the script or the icon; their address changes with their content."""
        if name not in self._files:
            return Response("there is no such file\n", 404, media_type="text/plain")
        fresh = request.query_params.get("v") == self._version
        cache = "public, max-age=31536000, immutable" if fresh else "no-cache"
        return Response(
            self._files[name],
            media_type=FILES[name],
            headers={"cache-control": cache, "etag": f'"{self._version}"'},
        )


def _time(moment: datetime | None, now: datetime | None) -> Markup:
    """A time: how long ago, with the exact one on hover; the script turns it to the zone of the viewer."""
    if moment is None:
        return Markup(NOTHING)
    moment = moment.astimezone(UTC)
    exact = moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    is_near = now is not None and abs(now - moment) < timedelta(days=2)
    text = ago(moment, now) if now is not None and is_near else exact[:16]
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), exact, text)


#: A time as messages of ours write it.
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\+\d\d:\d\d")


def _timed(text: str) -> Markup:
    """A message with the times in it marked, so that the script shows them in the zone of the viewer."""
    parts, last = [], 0
    for found in _MOMENT.finditer(text):
        try:
            moment = datetime.fromisoformat(found.group()).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
        exact = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
        parts.append(escape(shown(text[last : found.start()])))
        parts.append(
            Markup('<time data-exact datetime="{}" title="{}">{} UTC</time>').format(
                moment.isoformat(), exact, exact[:16]
            )
        )
        last = found.end()
    return Markup("").join([*parts, escape(shown(text[last:]))])


def _rate(number: float) -> str:
    """A rate: ``0.3``, ``42``, ``1,200``."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}" if number else NOTHING


def _flat(value: Any) -> str:
    """A value as JSON in one line. It is written back, so what would be spelled out on a page is escaped as in JSON."""
    text = json.dumps(value, ensure_ascii=False)
    return text if shown(text) == text else json.dumps(value)


def _cut(text: Any, limit: int) -> str:
    return cut(shown(str(text), 5000), limit)


def _said(words: str | None, limit: int = 160) -> str:
    """The first line of a text, for a table."""
    first = (words or "").strip().partition("\n")[0]
    return shown(first[:limit]) + ("…" if len(first) > limit else "")


def _drawing(data: dict[str, Any], visit: Visit) -> Markup:
    graph = JobGraph(Graph(nodes=tuple(data["nodes"]), edges=tuple(data["edges"])))
    focus, opened = data["job"]["id"], data["unfolded"]

    def unfold(job_id: UUID) -> str:
        words: Iterable[tuple[str, object]] = [("unfold", one) for one in [*opened, job_id]]
        return visit.link(address(visit.path, words))

    return drawn(
        folded(graph, focus=focus, unfolded=opened),
        focus=focus,
        link=lambda job_id: visit.link(path_of("jobs", job_id)),
        unfold=unfold,
    )
