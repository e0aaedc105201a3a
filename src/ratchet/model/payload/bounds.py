"""
How large and deep stored JSON may be, and how long restoring it may take.

Whoever can write to the database can write any text there. What is over these bounds makes one job unreadable and
costs nobody else anything. `encode` writes nothing that comes near them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, NoReturn, TypeVar

from ..errors import UnreadablePayload
from .tagging import MOST_LEVELS

#: Characters of JSON that are read at most, unless a limit of the options is higher.
READ_LIMIT: Final = 16 * 1024 * 1024
#: Containers within containers, in the JSON: a dict that is stored as pairs takes three for one level.
MOST_JSON_LEVELS: Final = 3 * MOST_LEVELS + 10
#: Text that is shorter than this cannot be too deep.
SHALLOW: Final = 2 * MOST_JSON_LEVELS
#: Keys of one set or dict that may have the same hash. One more, and building it takes quadratic time:
#: 1.7 MB of such integers took 11.5 s.
MOST_COLLISIONS: Final = 200
#: CPU seconds of the calling thread that restoring may take: so much, and so much for each character. A payload of
#: dataclasses takes 0.1 µs for each. CPU time, because a machine that is busy must not make a job unreadable.
_SECONDS: Final = 1.0
_SECONDS_PER_CHARACTER: Final = 0.5e-6
#: For readers that only show, a page of jobs at a time.
_SECONDS_TO_SHOW: Final = 0.1
#: Items between two looks at the clock.
_LOOK_EVERY: Final = 1000

Built = TypeVar("Built", set[Any], frozenset[Any], dict[Any, Any])


def refuse_size(text: str, limit: int, what: str) -> NoReturn:
    """*text* is too long to be read at all."""
    raise UnreadablePayload(
        f"the stored {what} cannot be read: {len(text):,} characters, the limit is {limit:,}"
    )


def require_depth(text: str, value: Any, what: str) -> None:
    """Refuse *value*, the JSON in *text*, if it is nested too deep; text shorter than `SHALLOW` never is."""
    if text.count("[") + text.count("{") <= MOST_JSON_LEVELS:
        return
    level = [value]
    for _ in range(MOST_JSON_LEVELS):
        level = [inner for outer in level for inner in _contents(outer)]
        if not level:
            return
    raise UnreadablePayload(
        f"the stored {what} cannot be read: nested more than {MOST_JSON_LEVELS} levels deep"
    )


def _contents(value: Any) -> Iterable[Any]:
    """The containers in *value*."""
    inside: Iterable[Any] = ()
    if type(value) is list:
        inside = value
    elif type(value) is dict:
        inside = value.values()
    elif hasattr(value, "args"):
        inside = (value.args, value.kwargs)
    return [item for item in inside if type(item) in (list, dict)]


class Effort:
    """What restoring one text has cost so far, and may cost."""

    __slots__ = ("_deadline", "_next", "_steps")

    def __init__(self, size: int, *, strict: bool) -> None:
        allowance = (_SECONDS if strict else _SECONDS_TO_SHOW) + size * _SECONDS_PER_CHARACTER
        self._deadline = time.thread_time() + allowance
        self._steps = 0
        self._next = _LOOK_EVERY

    def spend(self, items: int) -> None:
        """Count *items* that are restored; `UnreadablePayload` if the time is used up."""
        self._steps += items
        if self._steps >= self._next:
            self._next = self._steps + _LOOK_EVERY
            if time.thread_time() > self._deadline:
                raise UnreadablePayload("the stored value takes too long to restore")

    def set_of(self, cls: type[Built], items: list[Hashable]) -> Built:
        """*items* as a set or frozenset."""
        return self._built(cls, set(), items, items)

    def dict_of(self, pairs: list[tuple[Hashable, Any]]) -> dict[Any, Any]:
        """*pairs* as a dict."""
        return self._built(dict, {}, [key for key, _ in pairs], pairs)

    def _built(self, cls: type[Built], made: Any, keys: list[Hashable], items: list[Any]) -> Built:
        if len(keys) > MOST_COLLISIONS:
            _require_few_collisions(keys)
        update: Callable[[Any], None] = made.update
        for start in range(0, len(items), _LOOK_EVERY):
            some = items[start : start + _LOOK_EVERY]
            update(some)
            self.spend(len(some))
        result: Built = made if type(made) is cls else cls(made)
        return result


def _require_few_collisions(keys: list[Hashable]) -> None:
    crowded = {found for found, count in Counter(map(hash, keys)).items() if count > MOST_COLLISIONS}
    if not crowded:
        return
    distinct: dict[int, set[Hashable]] = {found: set() for found in crowded}
    for key in keys:
        same = distinct.get(hash(key))
        if same is not None:
            same.add(key)  # equal keys are one key, and harmless
            if len(same) > MOST_COLLISIONS:
                raise UnreadablePayload(
                    f"the stored value holds more than {MOST_COLLISIONS} keys with one and the same hash; "
                    f"it would take too long to restore"
                )
