"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first one."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("number", models.IntegerField(primary_key=True, serialize=False)),
                ("paid", models.BooleanField(default=False)),
            ],
        ),
    )
