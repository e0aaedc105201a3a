"""
Where a job's code runs, and how it is stopped.

The coordinator enters with `JobLane.accept` (see `lane`). A lane calls `JobTask.prepare` and `invoke`, and gives the
outcome to `Completer.put`.

- `lane`: what the engine asks of every lane.
- `slots`: what the lanes with workers have in common: the runs that wait, and how many more to claim.
- `threads`: ordinary functions; an exception is raised into the thread.
- `event_loop`: coroutines; their task is canceled.
- `processes`, `process_child`: CPU-bound functions; their process is killed.
- `inline`: the calling thread, one step at a time; for tests and the simulator.
"""
