"""
The trace that a job belongs to: what tracers keep with it, and how jobs are found by it.

It is kept among the job's params, under a reserved name: so it goes to the job's callbacks too, and a node of 0.1.0 hands it on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ratchet.model.callbacks import RESERVED
from ratchet.model.errors import InvalidJob, RatchetError
from ratchet.model.payload import read_json

#: The param that holds it.
KEPT = RESERVED + "trace"
#: Not from a tracer: the runs of the job are linked to the trace and are no part of it.
_LINKED = "linked"
#: May hold the words of anybody; the other values of a carrier name a trace.
_STATE = "tracestate"

_TAG = '{"$"'
_TRACE_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_write = msgspec.json.Encoder().encode


class Trace(Struct, frozen=True):
    """What tracers said at submit, by the name of the field; ``linked``: runs are traces of their own."""

    carrier: dict[str, str]
    linked: bool = False

    def ids(self) -> Iterator[str]:
        """The ids of the traces that it names: 32 hexadecimal digits each, that of a ``traceparent`` first."""
        for name in sorted(self.carrier, key=lambda name: name != "traceparent"):
            if name != _STATE:
                yield from _TRACE_ID.findall(self.carrier[name])


def with_trace(params: str | None, trace: Trace) -> str:
    """The stored *params* of a job, with its trace among them in place of another that was there."""
    kept = dict[str, Any](trace.carrier, **({_LINKED: True} if trace.linked else {}))
    if params is None:
        return _write({KEPT: kept}).decode()
    if KEPT not in params and not params.startswith(_TAG) and len(params) > 2:
        return f"{params[:-1]},{_write({KEPT: kept}).decode()[1:]}"
    stored = read_json(params, "params")
    if "$" in stored:  # params of which one is named like a tag
        stored["v"] = [*(pair for pair in stored["v"] if pair[0] != KEPT), [KEPT, kept]]
    else:
        stored[KEPT] = kept
    return _write(stored).decode()


def trace_of(params: str | None) -> Trace | None:
    """The trace among the stored *params* of a job; None if it has none that can be read."""
    if params is None or KEPT not in params:
        return None
    try:
        stored = read_json(params, "params")
    except RatchetError:
        return None
    if isinstance(stored, dict) and isinstance(stored.get("v"), list) and "$" in stored:
        stored = dict(pair for pair in stored["v"] if isinstance(pair, list) and pair[0] == KEPT)
    kept = stored.get(KEPT) if isinstance(stored, dict) else None
    if not isinstance(kept, Mapping):
        return None
    carrier = {name: value for name, value in kept.items() if isinstance(value, str)}
    return Trace(carrier, linked=kept.get(_LINKED) is True)


def trace_id_of(params: str | None) -> str | None:
    """The id of the trace among the stored *params* of a job."""
    trace = trace_of(params)
    return None if trace is None else next(trace.ids(), None)


def has_trace(params: str | None, trace_id: str) -> bool:
    """True if a job with these stored *params* belongs to the trace, or is linked to it."""
    if params is None or trace_id not in params:
        return False
    trace = trace_of(params)
    return trace is not None and trace_id in trace.ids()


def checked_trace_id(value: object, name: str = "trace_id") -> str:
    """*value* as the id of a trace; a whole ``traceparent`` will do."""
    found = _TRACE_ID.search(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise InvalidJob(
            f"{name} is the id of a trace, 32 hexadecimal digits such as 4bf92f3577b34da6a3ce929d0e0e4736, not {value!r:.100}"
        )
    return found[0]
