"""Makes the tables, when ``manage.py migrate`` runs."""
