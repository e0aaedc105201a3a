"""
What may run as a job, how it is named in the database, and how the name leads to the function again.

A submission calls `TargetRegistry.describe`, a worker `TargetRegistry.resolve`; both ask the target
policy. A stored target is ``module:qualname``, or the name that ``@scheduler.job(name=…)`` gave it.
Whoever can write to the database can write any name there, so a name alone proves nothing: the policy
is asked before anything is imported, a lookup passes through classes only and reads plain names in
their own ``__dict__``, and what it finds must come from a module that the policy allows too.
"""

from ratchet.api.targets.names import NAME_LIMIT, NamedTarget, default_name
from ratchet.api.targets.registry import (
    DECLARATION,
    JobDeclaration,
    TargetReference,
    TargetRegistry,
    declaration_of,
)

__all__ = [
    "DECLARATION",
    "NAME_LIMIT",
    "JobDeclaration",
    "NamedTarget",
    "TargetReference",
    "TargetRegistry",
    "declaration_of",
    "default_name",
]
