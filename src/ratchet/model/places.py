"""
Places: what a node needs to claim the jobs of a stream, as the stream's ``parked_target`` says it.

A place names a target (``shop:charge``), keys (``$key:2026-05,2026-11``), or both (``$key:2026-11;shop:charge``). A claim names the places
that its node can serve, so the jobs of all others cost it nothing. Encrypted jobs are at the place of their keys from the moment
they are submitted. A node of 0.1.0 takes such a place for a target that it does not know, and claims none of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: How places that name keys begin. No target begins like this.
_KEYS: Final = "$key:"
#: Between the keys and the target.
_AND_TARGET: Final = ";"
#: SQL patterns: of places that name keys, and of those that name a target too.
WITH_KEYS: Final = f"{_KEYS}%"
WITH_KEYS_AND_TARGET: Final = f"{_KEYS}%{_AND_TARGET}%"
#: How many keys a place names at most: so many of the longest ids fit.
_NAMED_KEYS: Final = 7
#: Characters of the longest place.
_LONGEST: Final = 512


def key_place(keys: Iterable[str]) -> str:
    """The place of jobs that need all of these keys."""
    return _KEYS + ",".join(sorted(set(keys))[:_NAMED_KEYS])


def keys_of(place: str | None) -> tuple[str, ...]:
    """The keys that the jobs at *place* need; empty if they need none."""
    if place is None or not place.startswith(_KEYS):
        return ()
    return tuple(place[len(_KEYS) :].partition(_AND_TARGET)[0].split(","))


def target_of(place: str | None) -> str | None:
    """The target that the jobs at *place* wait for; None if they wait for none."""
    if place is None or not place.startswith(_KEYS):
        return place
    _, names_one, target = place.partition(_AND_TARGET)
    return target if names_one else None  # a damaged one may be empty


def without_target(place: str | None) -> str | None:
    """Where a job at *place* belongs that is not parked any more; None: no node needs anything for it."""
    keys = keys_of(place)
    return key_place(keys) if keys else None


def all_keys(place: str | None) -> frozenset[str]:
    """The places that a node with every key, but with no parked target, serves among this one."""
    return frozenset() if place is None or target_of(place) is not None else frozenset({place})


def with_keys(place: str | None, keys: Iterable[str]) -> str | None:
    """*place* for jobs that need these keys, and not those that they needed before."""
    target, named = target_of(place), sorted(set(keys))
    if not named:
        return target
    if target is None:
        return key_place(named)
    both = f"{key_place(named)}{_AND_TARGET}{target}"
    # A target so long that the keys have no room beside it: a node without them claims such a job once.
    return both if len(both) <= _LONGEST else target


def parked_at(place: str | None, lack: str) -> str | None:
    """
    Where a job goes that a node claimed at *place*, and for which it lacks *lack*, a place of its own.

    Keys that were needed before still are. Else nodes that lack one thing each would claim the job in turns, for ever.
    """
    keys = {*keys_of(place), *keys_of(lack)}
    lacking = target_of(lack)
    return with_keys(target_of(place) if lacking is None else lacking, keys)
