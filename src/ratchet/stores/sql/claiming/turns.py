"""How SQL walks through the registry of streams, in the order in which keys take turns (`stores.next_parties`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ratchet.stores.levels import PRIORITIES
from ratchet.stores.next_parties import Met
from ratchet.stores.sql.claiming.gates import OPEN_STREAM, Choice, owners
from ratchet.stores.sql.database import Row

_FIRST_DUE = """(SELECT q.scheduled_time FROM scheduler_job_queue q <hint>
                   WHERE q.stream_id = s.stream_id AND q.priority = {} AND q.status = 'PENDING'
                   ORDER BY q.scheduled_time LIMIT 1) <= :now"""
_DUE = " + ".join(
    f"CASE WHEN {_FIRST_DUE.format(priority)} THEN {1 << priority} ELSE 0 END" for priority in PRIORITIES
)
# As many streams as are asked for, and no more, whatever is due in them: the work of one statement is bounded.
_STREAMS = f"""
    SELECT s.stream_id, s.fairness_key,
           CASE WHEN (SELECT q.stream_id FROM scheduler_job_queue q <hint>
                       WHERE q.stream_id = s.stream_id AND q.status = 'PENDING' LIMIT 1) IS NOT NULL AND {OPEN_STREAM}
                THEN {_DUE} ELSE 0 END AS due
      FROM (<streams>) s
"""
_ROWS = "SELECT t.* FROM scheduler_stream t WHERE t.lane = :lane AND t.suspect = :suspects AND <place> LIMIT :page"
_AFTER = "t.fairness_key <by> >= :after_key AND (t.fairness_key <by> > :after_key OR t.stream_id > :after_id)"
_ORDER = "ORDER BY t.lane, t.suspect, t.fairness_key <by>, t.stream_id"
_REGISTRY = {
    "to_the_end": _ROWS.replace("<place>", f"{_AFTER} {_ORDER}"),
    "to_a_key": _ROWS.replace("<place>", f"{_AFTER} AND t.fairness_key <by> <= :until_key {_ORDER}"),
    # one after the other: for both at once SQLite reads every key
    "without_key": " UNION ALL ".join(
        f"SELECT * FROM ({_ROWS.replace('<place>', place)}) {name}"
        for name, place in (("v", "t.fairness_key IS NULL"), ("w", "t.fairness_key = ''"))
    ),
}

#: Asks the database: a text, and its binds.
Ask = Callable[[str, Mapping[str, object]], Sequence[Row]]


def walks(*, hint: str = "", by: str = "") -> Mapping[str, str]:
    """The texts of one product. *hint*: use the claim index; *by*: compare keys by code point."""
    return {
        name: _STREAMS.replace("<streams>", streams).replace("<hint>", hint).replace("<by>", by)
        for name, streams in _REGISTRY.items()
    }


class SqlRegistry:
    """`stores.next_parties.Registry`; *params* are the binds of OPEN_STREAM."""

    def __init__(self, ask: Ask, texts: Mapping[str, str], params: Mapping[str, object]) -> None:
        self._ask = ask
        self._texts = texts
        self._params = params

    def keys(self, after: tuple[str, int], until: str | None, most: int) -> Sequence[Met]:
        """The first so many streams after a key and a number."""
        place = {**self._params, "page": most, "after_key": after[0], "after_id": after[1]}
        if until is None:
            return self._ask(self._texts["to_the_end"], place)
        return self._ask(self._texts["to_a_key"], {**place, "until_key": until})

    def without_key(self, most: int) -> Sequence[Met]:
        """So many of the streams without a key."""
        return self._ask(self._texts["without_key"], {**self._params, "page": most})


def parties_of(choice: Choice) -> list[str]:
    """The party of each chosen job."""
    owner = owners(choice.levels)
    return [owner[rank[2]].party for rank in choice.ranks]
