"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    """An order."""

    number = models.IntegerField(primary_key=True)
    paid = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"order {self.number}"
