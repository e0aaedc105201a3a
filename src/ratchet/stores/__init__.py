"""What keeps jobs: one package per kind of database."""
