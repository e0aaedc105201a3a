"""
Rewrites statements that MySQL and MariaDB spell differently, or do not have.

Our statements are written for products that have ``RETURNING``, ``ON CONFLICT`` and ``UPDATE … FROM`` (see `database`).
Here each of them becomes something that both MySQL 8 and MariaDB 10.6 understand: one statement, or two that do the
same under row locks:

- ``UPDATE … FROM rows``: an update of a join that starts from the rows.
- ``ON CONFLICT … DO NOTHING``: ``ON DUPLICATE KEY UPDATE`` of nothing. INSERT IGNORE would swallow bad data too.
- ``ON CONFLICT … DO UPDATE … WHERE``: an insert and, where that found a row, an update.
- ``UPDATE`` and ``DELETE … RETURNING``: the rows are read and locked, then changed.
- ``SELECT … FOR UPDATE`` of a range: InnoDB locks every row that it looks at, wanted or not. So the ids are
  read without locks, and then locked one by one by their primary key, under the same condition again.
- A statement that locks rows by a list of ids names the index to use: on a small table the optimizer would
  rather read, and lock, all of it. A DELETE ignores such a hint, so it is a join that starts from the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ratchet.stores.sql.columns import kind_of

#: The columns of each table's primary key.
KEYS: dict[str, tuple[str, ...]] = {
    "scheduler_job": ("job_id",),
    "scheduler_job_queue": ("job_id",),
    "scheduler_stream": ("stream_id",),
    "scheduler_queue": ("queue",),
    "scheduler_business_key_reservation": ("business_key",),
    "scheduler_idempotency_key": ("idempotency_key",),
    "scheduler_job_tag": ("tag", "job_id"),
    "scheduler_job_execution": ("job_id", "claim_id"),
    "scheduler_job_log": ("job_id", "claim_id", "sequence"),
    "scheduler_batch": ("batch_id",),
    "scheduler_batch_metrics": ("batch_id",),
    "scheduler_dependency": ("parent_id", "child_id"),
    "scheduler_workflow_condition": ("parent_id", "child_id"),
    "scheduler_recurring_job": ("name",),
    "scheduler_recurring_fire": ("name", "fire_at"),
    "scheduler_signal": ("signal_id",),
    "scheduler_lock": ("lock_name",),
    "scheduler_node": ("node_id",),
    "scheduler_job_archive": ("job_id",),
    "scheduler_resource_limit": ("resource",),
    "scheduler_resource_permit": ("job_id", "claim_id", "resource"),
    "scheduler_circuit_breaker": ("service",),
    "scheduler_dlq_alert": ("alert_id",),
    "scheduler_flow": ("seconds", "begins_at", "source"),
    "scheduler_audit": ("audit_id",),
    "scheduler_move": ("move_id",),
    "ratchet_schema_version": ("script",),
}

#: The other indexes by which statements lock: (table, first column) to the index.
INDEXES: dict[tuple[str, str], str] = {
    ("scheduler_business_key_reservation", "job_id"): "idx_reservation_job",
    ("scheduler_business_key_reservation", "node_id"): "idx_reservation_node",
    ("scheduler_resource_permit", "node_id"): "idx_permit_node",
    ("scheduler_job_tag", "job_id"): "idx_tag_job",
    ("scheduler_dependency", "child_id"): "idx_dependency_child",
    ("scheduler_dlq_alert", "job_id"): "idx_alert_job",
}

#: Columns and names of ours that are reserved words there.
RESERVED = ("signal", "keys")

#: The bind that carries the ids between the two steps of a locking read.
CANDIDATES = "candidates"

#: The bind for the first columns of such ids, where the key has several.
FIRST_OF_CANDIDATES = "candidates_first"

#: Suffixes of binds: of a row set that is written as a list of constants, and of a list that is written as a row set.
PAIRS = "__pairs"
LISTED = "__listed"

_TOKEN = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|[(){}]|[A-Za-z_]\w*", re.DOTALL)
_RESERVED = re.compile(
    rf"(?P<skip>'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|\{{[^{{}}]*\}})|(?<![.:\w`])(?P<word>{'|'.join(RESERVED)})(?!\w)",
    re.DOTALL,
)
_PAIRS = re.compile(
    r"\(\((?P<columns>\w+(?:, \w+)+)\) IN \(SELECT (?P<chosen>[\w., \n]+?)\s+"
    r"FROM \{rows (?P<name>\w+) \((?P<row>[^)]*)\)\}\)\) IS TRUE"
)
_INSERT = re.compile(r"INSERT INTO (?P<table>\w+)(?: AS (?P<alias>\w+))?\s+\((?P<columns>[^)]*)\)")
_CONFLICT = re.compile(r"ON CONFLICT \((?P<key>\w+)\) DO (?P<action>NOTHING|UPDATE)\s*")
_CHANGE = re.compile(r"(?P<verb>UPDATE|DELETE FROM) (?P<table>\w+)(?: AS (?P<alias>\w+))?\s*")
_READ = re.compile(r"SELECT (?P<columns>.*?)\sFROM (?P<table>\w+)\s+WHERE ", re.DOTALL)
_LOCKS = re.compile(r"\{for (?:no key )?update(?: of \w+)?(?: skip locked)?\}\s*$")
_COUNTED = re.compile(
    r"SELECT count\(\*\) AS \w+\s+FROM \((?P<read>SELECT [^()]*\{for update\})\) AS \w+\s*$"
)
_IN = re.compile(r"(?P<column>\w+) \{in (?P<name>\w+) (?P<kind>\w+)\}")
_FIRST = re.compile(r"\(?(\w+) (?:=|\{in)")
_ROWSET = re.compile(r"\{rows (?P<name>\w+) \((?P<columns>[^)]*)\)\}")


@dataclass(frozen=True, slots=True)
class Shape:
    """A statement as it is sent, still with binds and macros."""

    main: str
    asked: str | None = None  # RETURNING: read and lock these first; nothing found, nothing to change
    candidates: str | None = None  # the ids that `main` is to lock
    otherwise: str | None = None  # what to do where `main`, an insert, found its row taken
    #: An insert whose new keys are the answer: its row set, the key's place in it, and the plain insert.
    fresh: tuple[str, int, str] | None = None


def shape_of(sql: str) -> Shape:
    """A portable statement as these products understand it. ValueError: its shape is not known here."""
    text = _PAIRS.sub(_as_pairs, sql.strip())
    text = _RESERVED.sub(lambda match: match["skip"] or f"`{match['word']}`", text)
    if text.startswith("INSERT"):
        return _insert(text)
    if text.startswith(("UPDATE", "DELETE")):
        return _change(text)
    if text.startswith("SELECT") and (lock := _LOCKS.search(text)):
        return _locking_read(text[: lock.start()].rstrip(), lock[0].strip())
    if inner := _COUNTED.match(text):  # a derived table would lose the order, and with it the index
        return shape_of(inner["read"])
    return Shape(text)


def column(name: str) -> str:
    """A column's name, quoted where it must be."""
    return f"`{name}`" if name in RESERVED else name


# --- clauses ------------------------------------------------------------------------------------


def _words(text: str) -> Iterator[tuple[str, int]]:
    """The words outside of parentheses and macros, in capitals, each with its position."""
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in "({":
            depth += 1
        elif token[0] in ")}":
            depth -= 1
        elif depth == 0 and (token[0][0].isalpha() or token[0][0] == "_"):
            yield token[0].upper(), token.start()


def _split(text: str, *words: str) -> tuple[str, str]:
    """*text* before and from the first of these words on."""
    position = next((at for word, at in _words(text) if word in words), len(text))
    return text[:position].rstrip(), text[position:]


def _parts(text: str) -> list[str]:
    """The items of a list, at its commas."""
    items, depth, start = [], 0, 0
    for match in re.finditer(r"'(?:[^']|'')*'|[(){},]", text):
        if match[0] in "({":
            depth += 1
        elif match[0] in ")}":
            depth -= 1
        elif match[0] == "," and depth == 0:
            items.append(text[start : match.start()].strip())
            start = match.end()
    return [*items, text[start:].strip()]


def _as_pairs(match: re.Match[str]) -> str:
    # A list of constants is sorted once and searched; the subquery would be run for every row.
    chosen = [name.strip().rpartition(".")[2] for name in match["chosen"].split(",")]
    if chosen != [name.split()[0] for name in match["row"].split(",")]:
        raise ValueError(f"the columns are in another order than those of the row set, in: {match[0]}")
    return f"({match['columns']}) IN :{match['name']}{PAIRS}"


def _forced(table: str, condition: str) -> str:
    """The index by which *condition* finds its rows, as a hint; nothing where it names none."""
    first = _FIRST.match(condition)
    if first is None:
        return ""
    index = "PRIMARY" if KEYS[table][0] == first[1] else INDEXES.get((table, first[1]))
    return f" FORCE INDEX ({index})" if index else ""


# --- inserts ------------------------------------------------------------------------------------


def _insert(text: str) -> Shape:
    text, returning = _split(text, "RETURNING")
    conflict = _CONFLICT.search(text)
    if conflict is None:
        if returning:
            raise ValueError(f"RETURNING without ON CONFLICT is not known, in: {text}")
        return Shape(text)
    head, rest = text[: conflict.start()].rstrip(), text[conflict.end() :]
    into = _INSERT.match(head)
    if into is None:
        raise ValueError(f"this is no INSERT that is known: {text}")
    table, alias = into["table"], into["alias"]
    head = f"INSERT INTO {table} ({into['columns']}){head[into.end() :]}"
    key = f"{table}.{conflict['key']}"
    untouched = f"{head} ON DUPLICATE KEY UPDATE {key} = {key}"
    if conflict["action"] == "NOTHING":
        fresh = _fresh(head, conflict["key"], returning) if returning else None
        return Shape(untouched, fresh=fresh)
    assignments, condition = _split(rest.removeprefix("SET"), "WHERE")
    if alias:
        assignments = re.sub(rf"\b{alias}\.", f"{table}.", assignments)
    if condition:
        values = _values(head[head.index(")") + 1 :], into["columns"])
        update = _taken(table, alias, conflict["key"], values, rest)
        return Shape(untouched, otherwise=update)
    values_of = re.sub(r"excluded\.(\w+)", r"VALUES(\1)", assignments.strip())
    return Shape(f"{head} ON DUPLICATE KEY UPDATE {values_of}")


def _fresh(head: str, key: str, returning: str) -> tuple[str, int, str]:
    rowset = _ROWSET.search(head)
    if rowset is None or returning.split()[1:] != [key]:
        raise ValueError(f"only the key of an insert from a row set can be asked for, in: {head} {returning}")
    names = [name.split()[0] for name in rowset["columns"].split(",")]
    return rowset["name"], names.index(key), head


def _values(text: str, columns: str) -> dict[str, str]:
    text = text.strip()
    if not text.startswith("VALUES (") or not text.endswith(")"):
        raise ValueError(f"DO UPDATE … WHERE is known for VALUES only, not for: {text}")
    return dict(zip(_parts(columns), _parts(text[len("VALUES (") : -1]), strict=True))


def _taken(table: str, alias: str | None, key: str, values: dict[str, str], rest: str) -> str:
    """The update of a row that was there before."""
    rest = re.sub(r"excluded\.(\w+)", lambda match: values[match[1]], rest.removeprefix("SET"))
    assignments, condition = _split(rest, "WHERE")
    name = alias or table
    # Assignments take effect one after the other, so those that read the row come first.
    ordered = sorted(_parts(assignments), key=lambda item: f"{name}." not in item)
    return (
        f"UPDATE {table}{f' AS {alias}' if alias else ''} SET {', '.join(ordered)} "
        f"WHERE {name}.{key} = {values[key]} AND ({condition.removeprefix('WHERE').strip()})"
    )


# --- updates and deletes ------------------------------------------------------------------------


def _change(text: str) -> Shape:
    text, returning = _split(text, "RETURNING")
    change = _CHANGE.match(text)
    if change is None:
        raise ValueError(f"this is no UPDATE or DELETE that is known: {text}")
    table, alias = change["table"], change["alias"]
    body, condition = _split(text[change.end() :], "WHERE")
    condition = condition.removeprefix("WHERE").strip()
    assignments, source = _split(body.removeprefix("SET"), "FROM")
    if source:
        if returning:
            raise ValueError(f"UPDATE … FROM … RETURNING is not known, in: {text}")
        return Shape(_update_from(table, alias or table, assignments, source, condition))
    hint, candidates = _forced(table, condition), None
    if condition and not hint:
        candidates = f"SELECT {', '.join(KEYS[table])} FROM {table} WHERE {condition}"
        condition = f"{_among_candidates(table)} AND ({condition})"
        hint = " FORCE INDEX (PRIMARY)"
    where = f" WHERE {condition}" if condition else ""
    asked = None
    if returning:
        columns = returning.removeprefix("RETURNING").strip()
        asked = f"SELECT {columns} FROM {table}{hint}{where} FOR UPDATE"
    if change["verb"] == "UPDATE":
        main = f"UPDATE {table}{hint} SET {assignments.strip()}{where}"
    else:
        main = _delete(table, hint, condition)
    return Shape(main, asked=asked, candidates=candidates)


def _update_from(table: str, name: str, assignments: str, source: str, condition: str) -> str:
    key = re.search(rf"\b{name}\.(\w+) = ", condition)
    if key is None:
        raise ValueError(f"the rows of {table} are not found by a column, in: {condition}")
    hint = _forced(table, f"{key[1]} = ")
    qualified = ", ".join(f"{name}.{item}" for item in _parts(assignments))
    named = table if name == table else f"{table} AS {name}"
    rows = source.removeprefix("FROM").strip()
    return f"UPDATE {rows} STRAIGHT_JOIN {named}{hint} SET {qualified} WHERE {condition}"


def _delete(table: str, hint: str, condition: str) -> str:
    listed = _IN.match(condition)
    if listed is None or "PRIMARY" not in hint:
        return f"DELETE {table} FROM {table}{hint}{f' WHERE {condition}' if condition else ''}"
    uuid = listed["kind"] == "uuid"
    rows = (
        f"(SELECT {'UNHEX(c0)' if uuid else 'c0'} AS id FROM JSON_TABLE(:{listed['name']}{LISTED}, '$[*]' "
        f"COLUMNS (c0 {'CHAR(32)' if uuid else 'VARCHAR(255)'} PATH '$' ERROR ON ERROR)) AS t) AS listed"
    )
    rest = condition[listed.end() :]
    return f"DELETE {table} FROM {rows} STRAIGHT_JOIN {table}{hint} WHERE {table}.{listed['column']} = listed.id{rest}"


# --- locking reads ------------------------------------------------------------------------------


def _locking_read(text: str, lock: str) -> Shape:
    read = _READ.match(text)
    if read is None:
        return Shape(f"{text} {lock}")
    table, rest = read["table"], text[read.end() :]
    head = f"SELECT {read['columns']} FROM {table}"
    condition, order = _split(rest, "ORDER", "LIMIT")
    first = _FIRST.match(condition)
    key = KEYS[table]
    if first is not None and first[1] == key[0]:
        return Shape(f"{head}{_forced(table, condition)} WHERE {rest} {lock}")
    order = _split(order, "LIMIT")[0]
    return Shape(
        f"{head} FORCE INDEX (PRIMARY) WHERE {_among_candidates(table)} AND ({condition}) {order} {lock}",
        candidates=f"SELECT {', '.join(key)} FROM {table} WHERE {rest} {{current}}",
    )


def _among_candidates(table: str) -> str:
    key = KEYS[table]
    if len(key) == 1:
        return f"{key[0]} {{in {CANDIDATES} {kind_of(key[0])}}}"
    # the first column once more, because MariaDB does not look up pairs in an index
    first = f"{key[0]} {{in {FIRST_OF_CANDIDATES} {kind_of(key[0])}}}"
    return f"{first} AND ({', '.join(key)}) IN :{CANDIDATES}{PAIRS}"
