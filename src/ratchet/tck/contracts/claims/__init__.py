"""Claims: which jobs are due, in which order, and whose they are."""
