"""
One transaction: what it reads, decides and writes.

The entry is `database.Database.run`, which gives a `work.Work` to its caller and writes at the end what has
changed (`flush`). A `Work` has the tables of the in-memory store, read on demand (`tables`), so `work.Rules` are
that store's own verbs.
"""
