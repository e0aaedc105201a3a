"""Stores that are made of one class for each noun."""

from __future__ import annotations

import pytest

from ratchet.stores.memory.state import Part
from ratchet.stores.memory.store import MemoryStore
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.store import MongoStore


def nouns(store: type, name: str) -> list[object]:
    """What the nouns of a store define by this name."""
    return [vars(cls)[name] for cls in store.__mro__[1:] if name in vars(cls)]


@pytest.mark.parametrize(("store", "part"), [(MemoryStore, Part), (MongoStore, MongoPart)])
def test_no_two_nouns_define_the_same_name(store: type, part: type) -> None:
    """A method of one noun would hide that of another, without a word."""
    owners: dict[str, list[str]] = {}
    for cls in store.__mro__:
        if issubclass(cls, part) and cls is not part:
            for name, value in vars(cls).items():
                # one that is put around the noun's own method hides nothing
                around = cls is store and getattr(value, "__wrapped__", None) in nouns(store, name)
                if not name.startswith("__") and not around:
                    owners.setdefault(name, []).append(cls.__name__)
    owners.pop("_abc_impl", None)
    owners.pop("_is_protocol", None)
    assert {name: found for name, found in owners.items() if len(found) > 1} == {}
