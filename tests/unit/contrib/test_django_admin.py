"""Jobs in Django's admin: who sees them, who may change them, and what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.django_project import DjangoProject, sqlite_project

CLIENTS = """
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.test.utils import setup_test_environment
from django.urls import reverse

setup_test_environment()  # so that answers have their context

def client_with(*permissions, staff=True):
    user = User.objects.create_user(f"user{User.objects.count()}", is_staff=staff)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client

jobs_page = reverse("admin:ratchet_job_changelist")
def job_page(job):
    return reverse("admin:ratchet_job_change", args=[job.id])
"""


@pytest.fixture
def project(tmp_path: Path) -> DjangoProject:
    """A project with the admin, and a dashboard under its own address."""
    return sqlite_project(tmp_path, admin=True, dashboard="/ratchet/").migrated()


class TestPermissions:
    def test_looking_and_changing_take_a_permission_each(self, project: DjangoProject) -> None:
        """Strangers are sent to the login, staff without permission is refused, and looking is not changing."""
        shown = project.run(
            CLIENTS,
            """
            job = scheduler.enqueue_now(jobs.note, "a")
            pages = [jobs_page, job_page(job)]
            print([Client().get(page).status_code for page in pages])
            print([client_with("view_job", staff=False).get(page).status_code for page in pages])
            print([client_with().get(page).status_code for page in pages])
            looking = client_with("view_job")
            print([looking.get(page).status_code for page in pages])
            print([looking.post(page, {"action": "cancel", "job": str(job.id)}).status_code for page in pages], job.status())
            print("Cancel" in looking.get(jobs_page).content.decode())
            print("/admin/ratchet/job/" in looking.get("/admin/").content.decode())
            """,
        )
        assert shown.strip().split("\n") == [
            "[302, 302]",
            "[302, 302]",
            "[403, 403]",
            "[200, 200]",
            "[403, 403] PENDING",
            "False",
            "True",
        ]

    def test_a_form_without_its_token_is_refused(self, project: DjangoProject) -> None:
        """Another site cannot cancel jobs through a browser that is logged in."""
        shown = project.run(
            CLIENTS,
            """
            job = scheduler.enqueue_now(jobs.note, "a")
            inner = client_with("change_job")
            strict = Client(enforce_csrf_checks=True)
            strict.cookies = inner.cookies
            print(strict.post(jobs_page, {"action": "cancel", "job": str(job.id)}).status_code, job.status())
            """,
        )
        assert shown.strip() == "403 PENDING"


class TestPages:
    def test_actions(self, project: DjangoProject) -> None:
        """Cancel, retry, pause and resume, of many jobs and of one; what was not possible is counted, and the rest is in the admin's log."""
        shown = project.run(
            CLIENTS,
            """
            from django.contrib.admin.models import LogEntry
            client = client_with("view_job", "change_job")
            first, second = [scheduler.enqueue_now(jobs.note, name) for name in "ab"]
            def act(page, action, *chosen):
                answer = client.post(page, {"action": action, "job": [str(job.id) for job in chosen]}, follow=True)
                return [str(message) for message in answer.context["messages"]]
            print(act(jobs_page, "cancel", first, second), first.status(), second.status())
            print(act(jobs_page, "cancel", first))
            third = scheduler.enqueue_now(jobs.note, "c")
            print(act(job_page(third), "pause"), third.status())
            print(act(job_page(third), "resume"), third.status())
            print(act(jobs_page, "explode", third), third.status())
            print(client.post(jobs_page, {"action": "cancel", "job": "no id"}, follow=True).status_code)
            print(LogEntry.objects.count())
            """,
        )
        assert shown.strip().split("\n") == [
            "['Cancel: 2 of 2 jobs'] CANCELED CANCELED",
            "['Cancel: 0 of 1 jobs']",
            "['Pause: 1 of 1 jobs'] PAUSED",
            "['Resume: 1 of 1 jobs'] PENDING",
            "['Choose what to do.'] PENDING",
            "200",
            "4",
        ]

    def test_a_failed_job_is_shown_and_retried(self, project: DjangoProject) -> None:
        """Its error and traceback are there, escaped, and a link to the dashboard; a retry makes it run again."""
        shown = project.run(
            CLIENTS,
            """
            from ratchet.testing import run_worker_until_idle
            client = client_with("view_job", "change_job")
            result = tasks.broken.enqueue()
            nasty = scheduler.enqueue_now(jobs.note, "<script>alert(1)</script>")
            run_worker_until_idle(scheduler)
            page = client.get(f"/admin/ratchet/job/{result.id}/change/").content.decode()
            print("no such thing" in page, "Traceback" in page, f'href="/ratchet/jobs/{result.id}"' in page)
            page = client.get(job_page(nasty)).content.decode()
            print("<script>alert" in page, "&lt;script&gt;alert" in page)
            client.post(f"/admin/ratchet/job/{result.id}/change/", {"action": "retry"})
            print(scheduler.handle(result.id).status())
            print(client.get("/admin/ratchet/job/01234567-89ab-7cde-8000-000000000000/change/").status_code)
            """,
        )
        assert shown.strip().split("\n")[-4:] == ["True True True", "False True", "PENDING", "404"]

    def test_filters_and_pages(self, project: DjangoProject) -> None:
        """By status, queue, target and tag, page by page; a filter that makes no sense is told."""
        shown = project.run(
            CLIENTS,
            """
            client = client_with("view_job")
            scheduler.enqueue_many(jobs.note, [(str(n),) for n in range(60)])
            scheduler.enqueue(jobs.note, "mail").with_queue("mails").with_tags("red").submit()
            def listed(**given):
                answer = client.get(jobs_page, given)
                return len(answer.context["jobs"]), answer.context["next_page"]
            first, following = listed()
            print(first, len(client.get(f"{jobs_page}?{following}").context["jobs"]))
            print(listed(queue="mails"), listed(tag="red"), listed(status="RUNNING"), listed(target="shop.jobs:note")[0])
            for wrong in ({"cursor": "nonsense"}, {"status": "NONE"}):
                print(bool(list(client.get(jobs_page, wrong, follow=True).context["messages"])))
            """,
        )
        assert shown.strip().split("\n") == ["50 11", "(1, None) (1, None) (0, None) 50", "True", "True"]


class TestTheModelWithoutATable:
    def test_django_has_nothing_to_add_and_nothing_to_read(self, project: DjangoProject) -> None:
        """No migration is missing, and commands that walk over all models pass by."""
        project.manage("makemigrations", "--check", "--dry-run", "ratchet")
        assert "ratchet.job" not in project.manage("dumpdata", "ratchet")
        assert "ratchet.job" not in project.manage("dumpdata", "--all", "ratchet")
