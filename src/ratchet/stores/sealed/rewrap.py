"""
Which keys the stored values have, and moving them all to the active one while work goes on.

Both go through the store in portions. A row is changed only if it still holds what was read, so a change that a node makes at the same
moment wins, and is met in the next pass. Nothing is remembered: stopped at any point, the next call passes by what is done already.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast
from uuid import UUID

import msgspec
from msgspec import Struct

from ratchet.model.errors import ConfigurationError, MissingKey, UnreadablePayload
from ratchet.model.payload.envelope import is_sealed, sealing_key
from ratchet.model.places import keys_of
from ratchet.model.status import JobType
from ratchet.model.stored_values import Place, ValueChange, ValueRow
from ratchet.spi.payload_codec import PayloadCodec
from ratchet.spi.stored_values import ValueStore
from ratchet.stores.sealed.seals import Seals, of_audit, of_edge, of_job, of_log_line, of_schedule, of_signal
from ratchet.stores.sealed.store import SealedStore
from ratchet.stores.sealed.values import is_told_by_store

#: Rows that are read, and changed, in one step.
PORTION: Final = 200
#: How often a place is gone through, as long as others change what is being moved.
MOST_PASSES: Final = 5
#: What stands for the key of a value that was never encrypted.
PLAIN: Final = "(none)"

#: Texts that stores write by themselves too, in plain text.
_FOR_PEOPLE: Final = frozenset({"error", "traceback", "message", "progress", "reason"})
#: What a node has to open before it can run a job, as far as it is one text; the keys of a signal are found when it is claimed.
_NEEDED: Final = ("payload", "params", "state")
#: JSON with texts in it that are sealed one by one: the names of those.
_INNER: Final = {"signal": ("payload", "rejected"), "template": ("payload", "params")}


class Tally(Struct):
    """What a rewrap has done so far."""

    place: str = ""
    rows: int = 0  # that it has read
    moved: int = 0  # rows that have the active key now
    missed: int = 0  # rows that others changed at the same moment; the next pass meets them
    unreadable: int = 0  # values that do not decrypt, which stay as they are
    no_key: int = 0  # values of keys that are not here, which stay as they are
    missing: set[str] = set()


class StoredKeys:
    """The keys of all values in a store behind a codec."""

    def __init__(
        self, store: object, *, portion: int = PORTION, rest: Callable[[float], None] = time.sleep
    ) -> None:
        if not isinstance(store, SealedStore) or store.seals.codec is None:
            raise ConfigurationError(
                "this scheduler has no codec, so there are no keys; make it with Scheduler(url, codec=Keyring(...))"
            )
        if not hasattr(store.inner, "swap_values") or not hasattr(store.inner, "set_keys"):
            raise ConfigurationError(f"a {store.name} store cannot go through its values (`ValueStore`)")
        self._store = store
        self._values = cast(ValueStore, store.inner)
        self._seals: Seals = store.seals
        self._codec: PayloadCodec = store.seals.codec
        self._portion = portion
        self._rest = rest

    @property
    def active(self) -> str:
        """The id of the key that values are moved to."""
        return self._codec.active_key()

    # --- status ---

    def count(self) -> dict[str, Counter[str]]:
        """How many values each key has, by place; read in portions."""
        counts: dict[str, Counter[str]] = {}
        for place in Place:
            of_place = counts.setdefault(place.value, Counter())
            for rows in self._portions(place):
                for row in rows:
                    keys = list(_keys(row))
                    of_place.update(keys)
                    # A key that a job only asks for is in use too: without it nobody claims the job.
                    if place is Place.JOBS:
                        of_place.update(set().union(*_asked_for(row)).difference(keys))
        return counts

    def _portions(self, place: Place) -> Iterator[list[ValueRow]]:
        after: Any = None
        while rows := self._values.value_rows(place, after=after, limit=self._portion):
            yield rows
            after = rows[-1].key

    # --- rewrap ---

    def rewrap(self, *, per_second: float | None = None) -> Iterator[Tally]:
        """Move every value to the active key, at most so many rows a second; what was done so far, after each portion."""
        tally = Tally()
        for place in Place:
            tally.place = place.value
            before = tally.unreadable, tally.no_key
            for _ in range(MOST_PASSES):
                missed = tally.missed
                # What stays as it is counts once, however many passes there are.
                tally.unreadable, tally.no_key = before
                for rows in self._portions(place):
                    begun = time.monotonic()
                    self._move(place, rows, tally)
                    yield tally
                    if per_second is not None:
                        self._rest(max(0.0, len(rows) / per_second - (time.monotonic() - begun)))
                if tally.missed == missed:
                    break
        yield tally

    def _move(self, place: Place, rows: list[ValueRow], tally: Tally) -> None:
        seen = [(row, self._change(place, row, tally)) for row in rows]
        changes = [change for _, change in seen if change is not None]
        changed = self._values.swap_values(place, changes) if changes else 0
        tally.rows += len(rows)
        tally.moved += changed
        tally.missed += len(changes) - changed
        if place is Place.JOBS:
            self._name_keys(seen)

    def _name_keys(self, seen: Sequence[tuple[ValueRow, ValueChange | None]]) -> None:
        """
        Let the streams of these jobs name the keys that the jobs need, now that their values have been moved.

        Where this is stopped in between, a job asks for a key that it does not need any more; the next rewrap comes by here again.
        A job that others have changed meanwhile asks for what it was seen with, at worst: a node without the new key then claims it once.
        """
        asked: dict[UUID, set[str]] = {}
        for row, change in seen:
            texts = row.texts if change is None else {**row.texts, **change.after}
            needed = {key for field in _NEEDED if (key := sealing_key(texts.get(field))) is not None}
            if not needed and any(_asked_for(row)):
                # a callback that a store has made by itself: it is told of a job with that key
                needed = {self.active}
            if any(asked_for != needed for asked_for in _asked_for(row)):
                asked[row.facts["job_id"]] = needed
        if asked:
            self._values.set_keys(asked)

    def _change(self, place: Place, row: ValueRow, tally: Tally) -> ValueChange | None:
        after: dict[str, str] = {}
        for field, text in row.texts.items():
            try:
                moved = self._moved(place, row, field, text)
            except MissingKey as error:
                tally.no_key += 1
                tally.missing.update(error.keys)
                continue
            except UnreadablePayload:
                tally.unreadable += 1
                continue
            if moved != text:
                after[field] = moved
        if not after:
            return None
        return ValueChange(key=row.key, before={field: row.texts[field] for field in after}, after=after)

    def _moved(self, place: Place, row: ValueRow, field: str, text: str) -> str:
        if field in _INNER:
            return self._moved_inside(row, field, text)
        if not is_sealed(text) and (field in _FOR_PEOPLE or is_told_by_store(text)):
            if self._seals.is_strict:
                return text  # nobody knows who wrote it: sealed, it would look as if one of us had
            return self._seals.seal(text, _contexts(place, row.facts, field)[0])
        contexts = _contexts(place, row.facts, field)
        if sealing_key(text) == self._codec.active_key():
            if len(contexts) == 1:
                return text
            try:  # a callback's params: under its own id, or still under that of the job it is about
                self._seals.open(text, contexts[0])
                return text
            except UnreadablePayload:
                pass
        return self._seals.seal(self._opened(text, contexts), contexts[0])

    def _opened(self, text: str, contexts: list[bytes]) -> str:
        for context in contexts[:-1]:
            try:
                return self._seals.open(text, context)
            except UnreadablePayload:
                pass
        return self._seals.open(text, contexts[-1])

    def _moved_inside(self, row: ValueRow, field: str, text: str) -> str:
        try:
            stored = msgspec.json.decode(text)
            changed = False
            for name in _INNER[field]:
                inner = stored.get(name)
                if isinstance(inner, str) and sealing_key(inner) != self._codec.active_key():
                    if field == "template":
                        context = of_schedule(row.facts["name"], name)
                    else:
                        context = of_signal(stored["key"], name)
                    stored[name] = self._seals.seal(self._seals.open(inner, context), context)
                    changed = True
        except (msgspec.MsgspecError, AttributeError, KeyError, TypeError) as error:
            raise UnreadablePayload(f"the {field} is damaged") from error
        return msgspec.json.encode(stored).decode() if changed else text


def _asked_for(row: ValueRow) -> list[set[str]]:
    """The keys that the streams of a job name."""
    return [set(keys_of(row.facts.get(at))) for at in ("place", "queued_at")]


def _keys(row: ValueRow) -> Iterator[str]:
    for field, text in row.texts.items():
        if field not in _INNER:
            yield sealing_key(text) or PLAIN
            continue
        try:
            stored = msgspec.json.decode(text)
            inner = [stored.get(name) for name in _INNER[field]]
        except (msgspec.MsgspecError, AttributeError):
            yield PLAIN
            continue
        yield from (sealing_key(text) or PLAIN for text in inner if isinstance(text, str))


def _contexts(place: Place, facts: dict[str, Any], field: str) -> list[bytes]:
    """The contexts under which a value may stand, its own first."""
    match place:
        case Place.JOBS | Place.ARCHIVE:
            contexts = [of_job(facts["job_id"], field)]
            if field == "params" and facts.get("type") == JobType.CALLBACK and facts.get("parent_id"):
                contexts.append(of_job(facts["parent_id"], field))
            return contexts
        case Place.RUNS | Place.ALERTS:
            return [of_job(facts["job_id"], field)]
        case Place.LOGS:
            return [of_log_line(facts["job_id"], facts["attempt"], facts["at"])]
        case Place.AUDIT:
            return [of_audit(facts["id"])]
        case Place.SIGNALS:
            return [of_signal(facts["key"], field)]
        case Place.CONDITIONS:
            return [of_edge(facts["parent_id"], facts["child_id"])]
        case Place.SCHEDULES:
            return [of_schedule(facts["name"], field)]
