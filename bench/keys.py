"""Workloads with very many keys that all have work: how long a claim of a hundred jobs takes."""

from __future__ import annotations

from contextlib import ExitStack

from bench.conversation import ratchet
from bench.trial import Bench

SUBJECT = "bench.gated"
FEW, MANY, VERY_MANY = 50, 5_000, 100_000
CLAIMED = 100


def many_keys(bench: Bench, *, store: str) -> None:
    """Claim 100 jobs among 50, 5,000 and 100,000 keys that all have work: fairness keys, and concurrency keys that never bind."""
    for kind in ("fairness", "concurrency"):
        for keys in (FEW, bench.size(MANY), bench.size(VERY_MANY)):
            with ExitStack() as stack:
                place = stack.enter_context(bench.places[store].new())
                contender = ratchet(SUBJECT)
                process = stack.enter_context(contender.start(place.url))
                claims = 2 * bench.rounds + 1
                bench.say(f"{store}, {keys:,} {kind} keys")
                process.call("keyed", jobs=max(keys, CLAIMED * (claims + 2)), keys=keys, kind=kind)
                settle = getattr(place, "settle", None)
                if settle is not None:
                    settle()
                name = f"{store}: claim of {CLAIMED} among {keys:,} {kind} keys"
                for taken in process.call("claims", claims=claims, most=CLAIMED):
                    bench.results.of(name, contender.name, "ms").add(taken)
