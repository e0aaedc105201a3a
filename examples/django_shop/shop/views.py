"""The pages of the shop."""

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST
from prometheus_client import CollectorRegistry, generate_latest

from ratchet.contrib.django import scheduler
from ratchet.contrib.prometheus import instrument
from shop.jobs import charge
from shop.models import Order

registry = CollectorRegistry()
instrument(scheduler, registry=registry, store=True)


@require_POST
def place(request: HttpRequest, number: int) -> JsonResponse:
    """Store the order and its job, both or neither."""
    try:
        with transaction.atomic():
            Order.objects.create(number=number)
            job = charge.enqueue(number).submit()
    except IntegrityError:
        return JsonResponse({"error": f"there is an order {number} already"}, status=409)
    return JsonResponse({"job": str(job.id)})


def status(request: HttpRequest, job_id: str) -> JsonResponse:
    """Where a job is."""
    job = scheduler.jobs.get(job_id)
    return JsonResponse({"status": job.status, "result": job.result})


def metrics(request: HttpRequest) -> HttpResponse:
    """For Prometheus."""
    return HttpResponse(generate_latest(registry), content_type="text/plain")
