"""
Every action and page of the dashboard, for each of three roles: done and written down, or refused and written down.

The tables are compared with what the dashboard has: an action or a page without a row fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.testclient import TestClient

from ratchet import ManualClock, Permission, dashboard
from ratchet.dashboard.pages import PAGES
from ratchet.dashboard.verbs import VERBS
from ratchet.model.audit import AuditFilter
from ratchet.stores.memory import MemoryStore
from tests.integration.people_samples import ROLES, work
from tests.integration.test_permissions import World, prepare

P = Permission
#: What a browser says when a form of the page itself is sent.
HEADERS = {"sec-fetch-site": "same-origin", "accept": "application/json"}
TARGET = f"{work.__module__}:{work.__name__}"


@dataclass(frozen=True)
class Row:
    """What an address asks for, an example of it, what its form says, and as what it is written down."""

    permission: Permission
    path: str
    verb: str | None = None
    form: tuple[tuple[str, str], ...] = ()
    narrows: bool = False  # a refusal leaves jobs out


ONE_JOB = {
    "retry": (P.RETRY, "failed", "retry"),
    "cancel": (P.CANCEL, "pending", "cancel"),
    "pause": (P.PAUSE, "pending", "pause"),
    "resume": (P.RESUME, "paused", "resume"),
    "run-now": (P.RESCHEDULE, "pending", "reschedule"),
    "set-priority": (P.SET_PRIORITY, "pending", "set_priority"),
    "delete": (P.DELETE, "ended", "delete"),
}
GROUP = (("target", TARGET), ("error_type", "ValueError"))

#: ``{pending}`` and the like stand for ids; the key is the address as the dashboard has it.
ACTIONS: dict[str, Row] = {
    **{
        f"/jobs/{{id}}/{verb}": Row(permission, f"/jobs/{{{job}}}/{verb}", entry, (("to", "HIGH"),))
        for verb, (permission, job, entry) in ONE_JOB.items()
    },
    **{
        f"/jobs/{verb}": Row(
            permission, f"/jobs/{verb}", entry, (("id", f"{{{job}}}"), ("to", "HIGH")), narrows=True
        )
        for verb, (permission, job, entry) in ONE_JOB.items()
    },
    "/dead-letters/retry": Row(P.RETRY, "/dead-letters/retry", "retry", GROUP, narrows=True),
    "/dead-letters/purge": Row(P.DELETE, "/dead-letters/purge", "purge", GROUP, narrows=True),
    "/queues/{name:path}/pause": Row(P.QUEUES, "/queues/q/pause", "pause"),
    "/queues/{name:path}/resume": Row(P.QUEUES, "/queues/closed/resume", "resume"),
    "/limits/set": Row(P.LIMITS, "/limits/set", "set", (("name", "new"), ("concurrent", "3"))),
    "/limits/{name:path}/set": Row(P.LIMITS, "/limits/gateway/set", "set", (("concurrent", "3"),)),
    "/limits/{name:path}/remove": Row(P.LIMITS, "/limits/gateway/remove", "remove"),
    "/breakers/{name:path}/open": Row(P.BREAKERS, "/breakers/new/open", "open"),
    "/breakers/{name:path}/reset": Row(P.BREAKERS, "/breakers/broken/reset", "reset"),
    "/schedules/{name:path}/pause": Row(P.SCHEDULES, "/schedules/yearly/pause", "pause"),
    "/schedules/{name:path}/resume": Row(P.SCHEDULES, "/schedules/resting/resume", "resume"),
    "/schedules/{name:path}/trigger": Row(P.SCHEDULES, "/schedules/yearly/trigger", "trigger"),
    "/schedules/{name:path}/remove": Row(P.SCHEDULES, "/schedules/yearly/remove", "remove"),
    "/schedules/{name:path}/edit": Row(
        P.SCHEDULES, "/schedules/yearly/edit", "change", (("zone", "Asia/Tokyo"),)
    ),
    "/batches/{id}/cancel": Row(P.BATCHES, "/batches/{batch}/cancel", "cancel"),
    "/batches/{id}/retry-failed": Row(P.BATCHES, "/batches/{failed_batch}/retry-failed", "retry"),
    "/nodes/{name:path}/drain": Row(P.NODES, "/nodes/busy/drain", "drain"),
    "/nodes/{name:path}/resume": Row(P.NODES, "/nodes/drained/resume", "resume"),
    "/nodes/{name:path}/stop": Row(P.NODES, "/nodes/busy/stop", "stop"),
    "/nodes/{name:path}/remove": Row(P.NODES, "/nodes/gone/remove", "remove"),
}
LOOKS: dict[str, Row] = {
    "/": Row(P.LIST, "/"),
    "/jobs": Row(P.VIEW, "/jobs", narrows=True),
    "/jobs/{id}": Row(P.VIEW, "/jobs/{pending}"),
    "/dead-letters": Row(P.LIST, "/dead-letters"),
    "/queues": Row(P.LIST, "/queues"),
    "/limits": Row(P.LIST, "/limits"),
    "/schedules": Row(P.LIST, "/schedules"),
    "/schedules/{name:path}": Row(P.LIST, "/schedules/yearly"),
    "/batches": Row(P.LIST, "/batches"),
    "/batches/{id}": Row(P.LIST, "/batches/{batch}"),
    "/graphs/{id}": Row(P.VIEW, "/graphs/{pending}"),
    "/nodes": Row(P.LIST, "/nodes"),
    "/audit": Row(P.AUDIT, "/audit"),
}
ROLE_NAMES = ("viewer", "operator", "somebody", "admin")


@pytest.fixture
def world(clock: ManualClock) -> Iterator[World]:
    """A store with one of everything, behind roles."""
    made = prepare(MemoryStore(clock.now), clock)
    yield made
    made.scheduler.close()


def browser(world: World) -> TestClient:
    """A browser whose header says who it is."""
    app = dashboard.asgi(world.scheduler, authorize=lambda request, permission: request.headers.get("who"))
    return TestClient(app, base_url="http://localhost:8080", follow_redirects=False)


def filled(text: str, world: World) -> str:
    names = ("pending", "paused", "failed", "ended", "batch", "failed_batch")
    return text.format(**{name: getattr(world, name).id for name in names})


def written(world: World, who: str) -> list[tuple[str, str]]:
    found = world.scheduler.store.find_audit(AuditFilter(principal=who, source="dashboard"), limit=100)
    return [(one.verb, str(one.outcome)) for one in found]


def test_every_action_and_page_has_a_permission() -> None:
    """Each address is in its table, and nothing else is."""
    assert {verb.path for verb in VERBS} == set(ACTIONS)
    assert {page.path for page in PAGES} == set(LOOKS)


@pytest.mark.parametrize("role", ROLE_NAMES)
@pytest.mark.parametrize("address", ACTIONS)
def test_each_action_for_each_role(world: World, address: str, role: str) -> None:
    """What the role may not do is 403, changes nothing, and is written down once; the rest is done, in its name."""
    row, may = ACTIONS[address], ROLES.get(role, frozenset[Permission]())
    form: dict[str, Any] = {name: filled(text, world) for name, text in row.form}
    answer = browser(world).post(filled(row.path, world), data=form, headers={**HEADERS, "who": role})
    entries = written(world, role)
    if row.permission in may and (P.VIEW in may or role == "somebody"):
        assert answer.status_code == 200, answer.text
        assert answer.json()["changed"] >= 1
        assert entries == [(row.verb, "done")]
        return
    if row.narrows:
        assert answer.status_code in (403, 409), answer.text
        assert {outcome for _, outcome in entries} <= {"refused", "unchanged"}
        assert entries
    else:
        assert answer.status_code == 403, answer.text
        assert f"'{role}' may not " in answer.json()["error"]
        assert [outcome for _, outcome in entries] == ["refused"]


@pytest.mark.parametrize("role", ROLE_NAMES)
@pytest.mark.parametrize("address", LOOKS)
def test_each_page_for_each_role(world: World, address: str, role: str) -> None:
    """A page is shown, or refused with 403 and written down; a list leaves out what is not permitted."""
    row, may = LOOKS[address], ROLES.get(role, frozenset[Permission]())
    answer = browser(world).get(filled(row.path, world), headers={**HEADERS, "who": role})
    if row.permission in may:
        assert answer.status_code == 200, answer.text
        assert written(world, role) == []
    elif row.narrows:
        assert (answer.status_code, answer.json()["jobs"]) == (200, [])
    else:
        assert answer.status_code == 403, answer.text
        assert [outcome for _, outcome in written(world, role)] == ["refused"]
