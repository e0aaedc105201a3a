"""
What can be replaced: one Protocol a file, whose docstring is the contract; the store's are in `store`.

Nothing runs here but two things that several implementations share: `broadcast` (wakeups over any `medium`) and
`shield` (keeps the interruption of a job out of a store's code).
"""
