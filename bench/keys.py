"""Workloads with very many keys that all have work: how long a claim of a hundred jobs takes."""

from __future__ import annotations

from contextlib import ExitStack

from bench.conversation import ratchet
from bench.trial import Bench

SUBJECT = "bench.gated"
FEW, MANY, VERY_MANY = 50, 5_000, 100_000
CLAIMED = 100


def many_keys(bench: Bench, *, store: str) -> None:
    """
    Claim 100 jobs among 50, 5,000 and 100,000 keys that all have work: fairness keys, and concurrency keys that never bind.

    Each key has a job, or a few; and once more where the first key has 100,000 jobs before all others.
    """
    for kind in ("fairness", "concurrency"):
        for keys in (FEW, bench.size(MANY), bench.size(VERY_MANY)):
            for first in (0, bench.size(VERY_MANY)):
                if first and keys != bench.size(MANY):
                    continue
                with ExitStack() as stack:
                    place = stack.enter_context(bench.places[store].new())
                    contender = ratchet(SUBJECT)
                    process = stack.enter_context(contender.start(place.url))
                    claims = 2 * bench.rounds + 1
                    beside = f", {first:,} jobs of one of them" if first else ""
                    bench.say(f"{store}, {keys:,} {kind} keys{beside}")
                    jobs = max(keys, CLAIMED * (claims + 2))
                    process.call("keyed", jobs=jobs, keys=keys, kind=kind, first=first)
                    settle = getattr(place, "settle", None)
                    if settle is not None:
                        settle()
                    name = f"{store}: claim of {CLAIMED} among {keys:,} {kind} keys{beside}"
                    for taken in process.call("claims", claims=claims, most=CLAIMED):
                        bench.results.of(name, contender.name, "ms").add(taken)
