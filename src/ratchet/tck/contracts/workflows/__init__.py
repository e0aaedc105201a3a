"""
Workflows: how a parent's end settles its edges, and what that does to the jobs that wait.

`edges` is one parent and its edges, `joins` several parents, `cascades` the jobs further down and how
a retry revives them, and `graph` what can be read.
"""
