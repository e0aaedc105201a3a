"""
`Dashboard`: the ASGI application. A request is checked, read in a thread, and answered as HTML or JSON.

Nothing is started before it is needed: the lifespan of a mounted application does not run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from ratchet.dashboard.actions import Action, note
from ratchet.dashboard.answers import FRESH, OLDEST, Answers
from ratchet.dashboard.filters import CRITERIA, Words, address, searched, words_of
from ratchet.dashboard.guard import HEADERS, LOCAL, SAFE, VIEW, Authorize, Forbidden, Guard
from ratchet.dashboard.live import Live
from ratchet.dashboard.orders import Confirmation, Done, Order
from ratchet.dashboard.pages import PAGES, Page, Question
from ratchet.dashboard.pages.jobs import job_with_prefix
from ratchet.dashboard.pages.question import path_of
from ratchet.dashboard.rendering import Rendering, Visit
from ratchet.dashboard.text import document, shown
from ratchet.dashboard.threads import in_thread
from ratchet.dashboard.verbs import PERMISSIONS, SAID, VERBS, Verb, back_to
from ratchet.model.audit import AuditSource
from ratchet.model.errors import (
    ConfigurationError,
    EmptyFilter,
    InvalidJob,
    NotAuthorized,
    RatchetError,
    StoreError,
)
from ratchet.scheduler import Scheduler

logger = logging.getLogger("ratchet.dashboard")

#: Bytes of a form.
LARGEST_FORM = 1_000_000
#: Asks for the part of a page that changes.
FRAGMENT = "ratchet-fragment"


class Dashboard:
    """The pages and verbs of one scheduler, for browsers and programs."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        authorize: Authorize | None = None,
        read_only: bool = False,
        prefix: str | None = None,
        hosts: Sequence[str] | None = None,
        streams: bool = True,
    ) -> None:
        if not isinstance(scheduler, Scheduler):
            raise ConfigurationError(f"a dashboard is made for a Scheduler, not for {scheduler!r:.100}")
        if authorize is not None and not callable(authorize):
            raise ConfigurationError(
                f"authorize is a function of request and permission, not {authorize!r:.100}"
            )
        self._scheduler = scheduler
        self._guard = Guard(authorize, hosts)
        self._read_only = read_only
        self._prefix = None if prefix is None else "/" + prefix.strip("/") if prefix.strip("/") else ""
        self._streams = streams
        self._answers = Answers()
        self._rendering = Rendering()
        #: Who watches.
        self.live = Live()

    def serves(self, name: str | None) -> None:
        """Say who it is that uses it, where nobody is asked for a name: who has started it on this machine."""
        self._guard.local = name or LOCAL

    def forget(self) -> None:
        """Read each page anew when it is asked for next."""
        self._answers.clear()

    # --- the face of the server ---

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _stay(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        scope = located(scope, self._prefix)
        response = await self._answer(Request(scope, receive))
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("cache-control", "no-store")
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.scope["path"][len(request.scope["root_path"]) :]
        visit = Visit(
            request,
            base=request.scope["root_path"],
            path=path,
            read_only=self._read_only,
            streams=self._streams,
        )
        try:
            self._guard.check(request)
            if path == "":
                return RedirectResponse(f"{visit.base}/")
            if path.startswith("/static/") and request.method in SAFE:
                return self._rendering.file(path.removeprefix("/static/"), request)
            if request.method in SAFE:
                return await self._look(visit)
            if request.method == "POST":
                return await self._act(visit)
            return await self._say(
                visit, HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not answered here"
            )
        except Forbidden as error:
            return await self._say(visit, HTTPStatus.FORBIDDEN, str(error))
        except RatchetError as error:
            text, back = self._scheduler.backend.sanitized(str(error)), _origin(visit)
            return await self._say(visit, _status_of(error), text, back=back)
        except Exception:
            logger.exception("the page %s failed", shown(path, 300))
            return await self._say(
                visit, HTTPStatus.INTERNAL_SERVER_ERROR, "This page failed; the log of the process says why."
            )

    # --- looking ---

    async def _look(self, visit: Visit) -> Response:
        who = await self._guard.who(visit.request, VIEW)
        if who is None:
            raise Forbidden(f"you have not the permission {VIEW!r}")
        visit.who = who
        with self._acting_as(who):
            return await self._seen(visit)

    def _acting_as(self, who: str) -> AbstractContextManager[None]:
        return self._scheduler.acting_as(who, source=AuditSource.DASHBOARD)

    async def _seen(self, visit: Visit) -> Response:
        if visit.path == "/live":
            return self._hints(visit)
        found = _matching(PAGES, visit.path)
        if found is None:
            return await self._say(visit, HTTPStatus.NOT_FOUND, "There is no such page.")
        page, names = found
        if page.name == "jobs" and visit.request.query_params.get("q", "").strip():
            return await self._search(visit)
        data = await in_thread(self._read, page, names, visit.request.query_params)
        if visit.wants_json:
            return _json(document(data))
        visit.permissions = await self._permissions(visit.request)
        fragment = FRAGMENT in visit.request.headers
        body = await in_thread(self._rendering.page, page, data, visit, fragment=fragment)
        return _html(body, visit.request)

    async def _search(self, visit: Visit) -> Response:
        """The search box: to a job, or to the address that the words mean, beside the filters that are there."""
        words = visit.request.query_params
        kept = [(name, value) for name in CRITERIA for value in words.getlist(name) if value]
        found = searched(words["q"])
        for name, value in found:
            if name == "job":
                question = self._question({}, words)
                job_id = await in_thread(job_with_prefix, question, value)
                return RedirectResponse(visit.link(path_of("jobs", job_id)), 303)
        replaced = {name for name, _ in found}
        pairs = [pair for pair in kept if pair[0] not in replaced] + found
        return RedirectResponse(visit.link(address("/jobs", pairs)), 303)

    def _hints(self, visit: Visit) -> Response:
        """A stream of hints about one page."""
        target, _, text = visit.request.query_params.get("page", "/").partition("?")
        found = _matching(PAGES, target)
        if found is None or not self._streams:
            return Response("there is nothing to watch here\n", 404, media_type="text/plain")
        if self.live.is_full:
            return Response("too many browsers are connected\n", 503, media_type="text/plain")
        page, names = found
        words = words_of(text)

        async def digest() -> str:
            with self._acting_as(visit.who):
                return await in_thread(look)

        look = self._looking(page, names, words)
        hints = self.live.hints(json.dumps([target, text, self._seen_by()]), digest, page.every)
        return StreamingResponse(
            hints,
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no", "cache-control": "no-store"},
        )

    def _looking(self, page: Page, names: dict[str, str], words: Words) -> Callable[[], str]:
        """Tells one state of a page from another, at the cost of its pulse most of the time."""
        whole, felt, read_at, rest = "", "?", -math.inf, 0.0

        def look() -> str:
            nonlocal whole, felt, read_at, rest
            pulse = "" if page.pulse is None else _digest(page.pulse(self._question(names, words)))
            if pulse != felt or time.monotonic() - read_at >= rest:
                # What browsers are given must not be older than what was felt.
                fresh = 0.0 if page.pulse is not None and pulse != felt else None
                data = self._read(page, names, words, fresh)
                whole, felt, read_at = _digest(data), pulse, time.monotonic()
                rest = page.rest(data) if page.pulse is None else page.whole
            return pulse + whole

        return look

    def _read(self, page: Page, names: dict[str, str], words: Words, fresh: float | None = None) -> Any:
        chosen = sorted((name, value) for name, value in words.multi_items() if name not in ("did", "n"))
        key = json.dumps([page.name, names, chosen, self._seen_by()])
        return self._answers.get(
            key,
            lambda: page.read(self._question(names, words)),
            fresh=fresh if fresh is not None else OLDEST if page.every >= OLDEST else FRESH,
        )

    def _seen_by(self) -> str | None:
        """Whose answer it is: with an authorizer not everybody sees the same."""
        backend = self._scheduler.backend
        return None if backend.authorizer is None else backend.actor().name

    def _question(self, names: dict[str, str], words: Words) -> Question:
        seen_by = self._seen_by()

        def kept(name: str, read: Callable[[], Any], seconds: float) -> Any:
            return self._answers.get(json.dumps([name, seen_by]), read, fresh=seconds)

        return Question(self._scheduler, names, words, kept)

    async def _permissions(self, request: Request) -> frozenset[str]:
        """What the person may do, so that a page shows only that; each action asks again."""
        if self._read_only:
            return frozenset()
        return frozenset([one for one in PERMISSIONS if await self._guard.who(request, one) is not None])

    # --- acting ---

    async def _act(self, visit: Visit) -> Response:
        found = _matching(VERBS, visit.path)
        if found is None:
            return await self._say(visit, HTTPStatus.NOT_FOUND, "There is no such action.")
        verb, names = found
        if self._read_only:
            raise Forbidden("this dashboard is read-only")
        who = await self._guard.who(visit.request, verb.permission)
        if who is None:
            raise Forbidden(f"you have not the permission {verb.permission!r}")
        visit.who = who
        form = await _form(visit.request)
        query = visit.request.query_params
        words = ImmutableMultiDict(
            [*query.multi_items(), *((name, value) for name, value in form.multi_items() if name in CRITERIA)]
        )
        order = Order(self._scheduler, names, words, form, who, asks=not visit.wants_json)
        try:
            with self._acting_as(who):
                done = await in_thread(verb.act, order)
        except RatchetError as error:
            self._note(visit, verb, path_text(names, verb), f"refused: {error}", 0)
            raise
        finally:
            self._answers.clear()
        if isinstance(done, Confirmation):
            return await self._confirm(visit, verb, done)
        outcome = "done" if done.count else f"nothing changed: {done.refusal}"
        self._note(visit, verb, done.object, outcome, done.count)
        return await self._told(visit, verb, done)

    async def _told(self, visit: Visit, verb: Verb, done: Done) -> Response:
        if visit.wants_json:
            answer = {
                "verb": verb.permission,
                "object": done.object,
                "changed": done.count,
                "more": done.more,
            }
            if not done.count:
                answer["refused"] = done.refusal
            return _json(document(answer), 200 if done.count else 409)
        if not done.count:
            text = f"Nothing was changed: {done.object}: {done.refusal}."
            return await self._say(visit, HTTPStatus.CONFLICT, text, back=done.back)
        return RedirectResponse(visit.link(back_to(done, verb.permission)), 303)

    async def _confirm(self, visit: Visit, verb: Verb, asked: Confirmation) -> Response:
        if visit.wants_json:
            return _json({"verb": verb.permission, "would_change": min(asked.count, asked.most)})
        body = await in_thread(self._rendering.confirmation, asked, SAID[verb.permission], visit)
        return _html(body, visit.request)

    def _note(self, visit: Visit, verb: Verb, named: str, outcome: str, count: int) -> None:
        client = visit.request.client
        note(
            Action(
                who=visit.who,
                verb=verb.permission,
                object=named,
                outcome=self._scheduler.backend.sanitized(outcome),
                count=count,
                address=None if client is None else client.host,
            )
        )

    # --- what went wrong ---

    async def _say(self, visit: Visit, status: HTTPStatus, text: str, *, back: str = "/") -> Response:
        if visit.wants_json:
            return _json({"error": text}, status)
        fragment = FRAGMENT in visit.request.headers
        body = await in_thread(self._rendering.problem, status, text, back, visit, fragment=fragment)
        return Response(body, status, media_type="text/html")


def located(scope: Scope, prefix: str | None) -> Scope:
    """
    The scope with ``root_path`` as browsers see it, and a ``path`` that begins with it.

    Frameworks differ: some leave the mount's path in ``path``, some take it out, and some do not say what it was. Then
    it is what ``raw_path`` has and ``path`` has not.
    """
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    raw = unquote(scope.get("raw_path", b"").decode("latin-1").partition("?")[0])
    if len(path) > 1 and path.endswith("/") and raw and not raw.endswith("/"):
        path = path[:-1]  # a slash that the browser did not send
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    elif not root:
        tail = path.rstrip("/")
        if raw.rstrip("/") != tail and raw.rstrip("/").endswith(tail):
            root = raw.rstrip("/").removesuffix(tail)
    if prefix is not None:
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            path = path[len(prefix) :]
        root = prefix
    return {**scope, "root_path": root, "path": f"{root}{path}"}


def _matching(among: Sequence[Any], path: str) -> tuple[Any, dict[str, str]] | None:
    for one in among:
        pattern: re.Pattern[str] = one.pattern
        if (found := pattern.match(path)) is not None:
            return one, found.groupdict()
    return _matching(among, path.rstrip("/")) if len(path) > 1 and path.endswith("/") else None


def _origin(visit: Visit) -> str:
    """The page on which an action was asked for; the overview where that cannot be told."""
    if visit.request.method in SAFE:
        return "/"
    page = visit.path.rpartition("/")[0]
    if page.startswith("/breakers/"):
        return "/limits"
    if _matching(PAGES, page) is None:
        page = "/" + page.split("/")[1] if page else "/"
    return quote(page) if _matching(PAGES, page) is not None else "/"


def _digest(data: Any) -> str:
    return hashlib.blake2b(json.dumps(document(data)).encode(errors="replace"), digest_size=16).hexdigest()


def path_text(names: dict[str, str], verb: Verb) -> str:
    """What a verb was asked for, in words."""
    return " ".join([verb.permission.partition(".")[0], *names.values()])


async def _form(request: Request) -> Words:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_FORM:
            raise InvalidJob(f"a form has {LARGEST_FORM:,} bytes at most")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" and body:
        return ImmutableMultiDict(_pairs(body))
    text = body.decode(errors="replace")
    return ImmutableMultiDict(parse_qsl(text, keep_blank_values=True, max_num_fields=10_000))


def _pairs(body: bytes) -> list[tuple[str, str]]:
    try:
        found = json.loads(body)
    except ValueError:
        raise InvalidJob("the body is no JSON") from None
    if not isinstance(found, dict):
        raise InvalidJob("the body is a JSON object, such as {'priority': 'HIGH'}")
    return [
        (name, item if isinstance(item, str) else json.dumps(item))
        for name, value in found.items()
        for item in (value if isinstance(value, list) else [value])
        if item is not None and item is not False
    ]


def _status_of(error: RatchetError) -> HTTPStatus:
    match error:
        case NotAuthorized():
            return HTTPStatus.FORBIDDEN
        case LookupError():
            return HTTPStatus.NOT_FOUND
        case InvalidJob() | EmptyFilter():
            return HTTPStatus.BAD_REQUEST
        case StoreError():
            return HTTPStatus.SERVICE_UNAVAILABLE
    return HTTPStatus.CONFLICT


def _json(value: Any, status: int = 200) -> Response:
    body = json.dumps(value, ensure_ascii=True)  # half characters cannot be sent in any other way
    return Response(body, status, media_type="application/json", headers={"vary": "accept"})


def _html(body: str, request: Request) -> Response:
    """The page, or that it is the one that the browser has."""
    content = body.encode(errors="backslashreplace")
    tag = f'"{hashlib.blake2b(content, digest_size=16).hexdigest()}"'
    headers = {"etag": tag, "vary": f"accept, {FRAGMENT}", "cache-control": "no-cache, private"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="text/html", headers=headers)


async def _stay(receive: Receive, send: Send) -> None:
    while True:
        message: Message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return
