"""The SQL store is made of one class for each noun; together they are the contract, and none hides a name of another."""

from __future__ import annotations

import inspect
from collections import Counter

from ratchet.spi.store import JobStore
from ratchet.stores.sql.database import SqlPart
from ratchet.stores.sql.store import SqlStore

PARTS = [part for part in SqlStore.__mro__ if issubclass(part, SqlPart) and part is not SqlPart]


#: What the contract itself defines, over methods of the parts.
DEFAULTS = {"claim_next_batch_optimized"}


def names_in(part: type) -> list[str]:
    return [
        name
        for name, value in vars(part).items()
        if not name.startswith("__") and (callable(value) or isinstance(value, property))
    ]


def test_no_part_hides_a_name_of_another() -> None:
    """Neither a method of the contract nor a private one: the later class would silently lose its own."""
    defined = Counter(name for part in PARTS for name in names_in(part))
    assert [name for name, times in defined.items() if times > 1] == []


def test_every_method_of_the_contract_is_in_one_part() -> None:
    """With the contract's parameters, by name and kind."""
    for name, promised in inspect.getmembers(JobStore, inspect.isfunction):
        if name.startswith("_") or name in DEFAULTS:
            continue
        (part,) = [part for part in PARTS if name in vars(part)]
        offered = inspect.signature(vars(part)[name]).parameters
        assert [(one.name, one.kind) for one in offered.values()] == [
            (one.name, one.kind) for one in inspect.signature(promised).parameters.values()
        ], name
