"""
Jobs in Django's admin: a list that can be filtered, a page for each job, and retry, cancel, pause and resume as actions.

Everything is read and changed through the scheduler. Looking takes the permission ``ratchet.view_job``, changing ``ratchet.change_job``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from ratchet.contrib.django import scheduler
from ratchet.contrib.django.models import Job as JobModel
from ratchet.model.errors import InvalidJob, JobNotFound, RatchetError
from ratchet.model.job import Job, JobFilter
from ratchet.model.status import JobStatus

#: Jobs on a page.
PAGE = 50
#: What can be done, with what people read.
ACTIONS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "retry": ("Retry", lambda job_id: scheduler.retry_job(job_id)),
    "cancel": ("Cancel", lambda job_id: scheduler.cancel_job(job_id, reason="canceled in Django's admin")),
    "pause": ("Pause", lambda job_id: scheduler.pause_job(job_id)),
    "resume": ("Resume", lambda job_id: scheduler.resume_job(job_id)),
}


@admin.register(JobModel)
class JobAdmin(admin.ModelAdmin):
    """The pages."""

    def get_urls(self) -> list[Any]:
        """A list and a page for each job, under the names that the admin gives to such pages."""
        return [
            path("", self.admin_site.admin_view(self.list_page), name="ratchet_job_changelist"),
            path(
                "<uuid:job_id>/change/", self.admin_site.admin_view(self.job_page), name="ratchet_job_change"
            ),
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody: code submits jobs."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: retention removes them."""
        return False

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """The newest jobs that the filter lets through; a POST acts on those that were chosen."""
        self._require_view(request)
        if request.method == "POST":
            self._act(request, request.POST.get("action", ""), request.POST.getlist("job"))
            return HttpResponseRedirect(request.get_full_path())
        given = {name: request.GET.get(name, "").strip() for name in ("status", "queue", "target", "tag")}
        try:
            page = scheduler.jobs.find(
                _filter_of(given), limit=PAGE, cursor=request.GET.get("cursor") or None
            )
        except (RatchetError, ValueError) as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(
                reverse("admin:ratchet_job_changelist", current_app=self.admin_site.name)
            )
        query = request.GET.copy()
        if page.next_cursor is not None:
            query["cursor"] = page.next_cursor
        return self._shown(
            request,
            "change_list",
            title="Jobs",
            jobs=page.items,
            statuses=list(JobStatus),
            given=given,
            next_page=None if page.next_cursor is None else query.urlencode(),
        )

    def job_page(self, request: HttpRequest, job_id: Any) -> HttpResponse:
        """One job: what it is, its runs, its log, and why it is not running; a POST acts on it."""
        self._require_view(request)
        if request.method == "POST":
            self._act(request, request.POST.get("action", ""), [str(job_id)])
            return HttpResponseRedirect(request.path)
        try:
            job = scheduler.jobs.get(job_id)
        except JobNotFound:
            raise Http404(f"there is no job {job_id}") from None
        return self._shown(
            request,
            "change_form",
            title=f"{job.target}",
            job=job,
            facts=_facts_of(job),
            executions=scheduler.jobs.executions(job_id, all=True),
            logs=scheduler.jobs.logs(job_id),
            reasons=[] if job.status.is_terminal else scheduler.explain(job_id),
        )

    def _require_view(self, request: HttpRequest) -> None:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied

    def _act(self, request: HttpRequest, action: str, job_ids: list[str]) -> None:
        if not self.has_change_permission(request):
            raise PermissionDenied
        if action not in ACTIONS:
            messages.warning(request, "Choose what to do.")
            return
        name, verb = ACTIONS[action]
        done = 0
        for job_id in job_ids:
            try:
                changed = verb(job_id)
            except (JobNotFound, InvalidJob) as error:
                messages.error(request, str(error))
                continue
            done += changed
            if changed:
                self.log_change(request, JobModel(pk=job_id), f"{name} of job {job_id}")
        level = messages.SUCCESS if done == len(job_ids) else messages.WARNING
        messages.add_message(request, level, f"{name}: {done} of {len(job_ids)} jobs")

    def _shown(self, request: HttpRequest, template: str, **context: Any) -> HttpResponse:
        request.current_app = self.admin_site.name  # Django's way to name the site of the links
        return TemplateResponse(
            request,
            f"admin/ratchet/job/{template}.html",
            {
                **self.admin_site.each_context(request),
                "opts": self.opts,
                "actions": [(name, label) for name, (label, _) in ACTIONS.items()],
                "may_change": self.has_change_permission(request),
                "dashboard": scheduler.dashboard,
                **context,
            },
        )


def _filter_of(given: dict[str, str]) -> JobFilter:
    return JobFilter(
        statuses=[JobStatus(given["status"])] if given["status"] else None,
        queue=given["queue"] or None,
        targets=[given["target"]] if given["target"] else None,
        tags=[given["tag"]] if given["tag"] else None,
    )


def _facts_of(job: Job) -> list[tuple[str, Any]]:
    """What is known about a job, for people; what is empty is left out."""
    return [
        (name.replace("_", " "), value)
        for name, value in job.to_dict().items()
        if value not in (None, [], {}, "")
    ]
