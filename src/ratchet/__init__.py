"""Background jobs that survive crashes, kept in the database you already have."""
