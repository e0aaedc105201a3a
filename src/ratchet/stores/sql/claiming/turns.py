"""How SQL walks through the registry of streams, in the order in which keys take turns (`stores.next_parties`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ratchet.stores.fairness import Rank
from ratchet.stores.levels import PRIORITIES
from ratchet.stores.next_parties import KEYED_FROM, Job, Met
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
        for name, place in (("v", "t.fairness_key IS NULL<below>"), ("w", "t.fairness_key = ''<below>"))
    ),
}
_BELOW = f" AND t.stream_id < {KEYED_FROM}"
# The number stands in the text: by it the planner knows that the index has all that is asked for.
_JOBS = """
    SELECT k.stream_id, k.priority, k.<due>, k.<id>,
           CASE WHEN s.fairness_key IS NULL AND {open_stream} THEN 1 ELSE 0 END AS may_run
      FROM (SELECT q.stream_id, q.priority, q.scheduled_time <as due>, q.job_id <as id> FROM scheduler_job_queue q
             WHERE q.status = 'PENDING' AND q.stream_id >= {first} AND q.priority = {priority} AND q.scheduled_time <= :now
             ORDER BY q.priority, q.scheduled_time, q.job_id LIMIT :page) k
      <join>
"""
_JOIN = "JOIN scheduler_stream s ON s.stream_id = k.stream_id"
#: For a planner that takes a limit it does not know for a tenth of the table, and would read all streams.
LATERAL = "CROSS JOIN LATERAL (SELECT * FROM scheduler_stream t WHERE t.stream_id = k.stream_id LIMIT 1) s"

#: Asks the database: a text, and its binds.
Ask = Callable[[str, Mapping[str, object]], Sequence[Row]]


def walks(
    *, hint: str = "", by: str = "", keyed: bool = True, raw: bool = False, join: str = _JOIN
) -> Mapping[str, str]:
    """
    The texts of one product.

    *hint*: use the claim index; *by*: compare keys by code point; *keyed*: it has an index of the jobs of concurrency
    keys; *raw*: their times and ids are to come as they are stored; *join*: how they find their streams.
    """
    texts = {
        name: _STREAMS.replace("<streams>", streams)
        .replace("<hint>", hint)
        .replace("<by>", by)
        .replace("<below>", _BELOW if keyed else "")
        for name, streams in _REGISTRY.items()
    }
    if keyed:
        due, job_id = ("raw_due", "raw_id") if raw else ("scheduled_time", "job_id")
        texts["jobs_of_keys"] = " UNION ALL ".join(
            _JOBS.format(open_stream=OPEN_STREAM, first=KEYED_FROM, priority=priority)
            .replace("<join>", join)
            .replace("<due>", due)
            .replace("<id>", job_id)
            .replace("<as due>", f"AS {due}")
            .replace("<as id>", f"AS {job_id}")
            for priority in PRIORITIES
        )
    return texts


class SqlRegistry:
    """`stores.next_parties.Registry`; *params* are the binds of OPEN_STREAM, *rank* makes ranks of priority, due time and id."""

    def __init__(
        self,
        ask: Ask,
        texts: Mapping[str, str],
        params: Mapping[str, object],
        rank: Callable[[int, Any, Any], Rank],
    ) -> None:
        self._ask = ask
        self._texts = texts
        self._params = params
        self._rank = rank

    def keys(self, after: tuple[str, int], until: str | None, most: int) -> Sequence[Met]:
        """The first so many streams after a key and a number."""
        place = {**self._params, "page": most, "after_key": after[0], "after_id": after[1]}
        if until is None:
            return self._ask(self._texts["to_the_end"], place)
        return self._ask(self._texts["to_a_key"], {**place, "until_key": until})

    def without_key(self, most: int) -> Sequence[Met]:
        """So many of the streams without a key."""
        return self._ask(self._texts["without_key"], {**self._params, "page": most})

    def jobs_of_keys(self, most: int) -> Sequence[Job]:
        """The first so many due jobs of concurrency keys, of each priority."""
        sql = self._texts.get("jobs_of_keys")
        if sql is None:
            return ()
        rows = self._ask(sql, {**self._params, "page": most})
        return [Job(row[0], row[1], self._rank(*row[1:4]), bool(row[4])) for row in rows]


def chosen_of(choice: Choice) -> list[tuple[str, Rank]]:
    """The party and the rank of each chosen job."""
    owner = owners(choice.levels)
    return [(owner[rank[2]].party, rank) for rank in choice.ranks]


def parties_of(choice: Choice) -> list[str]:
    """The party of each chosen job."""
    return [party for party, _ in chosen_of(choice)]
