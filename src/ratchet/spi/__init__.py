"""
What can be replaced: one Protocol a file, whose docstring is the contract; the store's are in `store`.

Nothing runs here but three things that several implementations share: `broadcast` (wakeups over any `medium`),
`shield` (keeps the interruption of a job out of a store's code) and `fault_log` (logs what a replaced part does wrong).
"""
