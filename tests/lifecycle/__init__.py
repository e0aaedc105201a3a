"""The life of a job on a running node, on every store: timeouts, cancellation, keys, gates, breakers."""
