"""
What may run as a job, how it is named in the database, and how the name finds its function again.

A stored target is ``module:qualname``, or the stable name that ``@scheduler.job(name=…)`` gave it.
Whoever can write to the database can write any name there, so a name is worth nothing by itself:
the policy is asked before anything is imported, only classes are looked into, only at plain names
in their own ``__dict__``, and what is found must come from a module that the policy allows too.
"""

from ratchet.api.targets.names import NAME_LIMIT, default_name
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
    "TargetReference",
    "TargetRegistry",
    "declaration_of",
    "default_name",
]
