"""
Running jobs: from the claim to the answered completion, and everything a node does beside that.

`Node.start` enters here; `ManualNode.run_until_idle` does the same in tests, without threads. The engine calls
the store (`ratchet.spi.store`), the other SPIs and the user's functions, and nothing above itself.

A job passes these parts, in this order:

- `node`: one thread for each part (`service`); `assembly` makes the parts and connects them.
- `poller`: claims due jobs for lanes that have room.
- `coordinator`: knows every claim of this node. `planned_starts` holds those that a rate lets start later.
- `lanes`: where code runs, and how it is stopped.
- `run`, `task`: one run, and its twelve steps; `transaction` is ``ctx.transaction()``, `conditions` the branches.
- `decide`: what follows from the end of a run. One `match`, and nothing decides after it.
- `completer`: carries decisions out, many in one commit.
- `announcer`: what follows in this process: `events`, wakeups, and results that threads wait for (`waiter`).

Beside them, on threads of their own: `heartbeat` with `pace` and `orphans` (who is alive), `watch` (timeouts),
`recurring` with `timetable` (schedules), `batches` (progress, batches left behind), `maintenance` (expiry, archive,
purges), `logs` (what jobs log). `identity` is the name of this node.
"""
