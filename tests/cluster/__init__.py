"""Real worker processes that share a store: they start, work, are killed, frozen and replaced, and lose nothing."""
