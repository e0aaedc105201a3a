"""Random lives of jobs, played on every store; each answer is compared with the in-memory store's."""
