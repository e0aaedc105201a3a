"""What is where."""

from django.contrib import admin
from django.urls import path
from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/<int:number>", views.place),
    path("jobs/<str:job_id>", views.status),
    path("metrics", views.metrics),
]
