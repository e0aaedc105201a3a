"""The command line of the bench."""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import compositions, drains, endurance, fairness, footprint, gates, latencies, sizing, submissions
from bench.conversation import SubjectFailed, ratchet
from bench.counts import count_per_job
from bench.earlier import commit, earlier
from bench.environments import KNOWN, peer
from bench.equipped import PARTS, equipped
from bench.measurement import TARGETS, Results, priced, unchanged
from bench.report import combined, keep, print_tables, write_page, write_run
from bench.servers import Places, mariadb_server, mongodb_server, postgresql_server
from bench.trial import Bench

WORKLOADS = {
    "enqueue-sync": partial(submissions.enqueue, awaiting=False),
    "enqueue-async": partial(submissions.enqueue, awaiting=True),
    "bulk": submissions.bulk,
    "drain-sync-1": partial(drains.drain, coroutines=False, processes=1),
    "drain-async-1": partial(drains.drain, coroutines=True, processes=1),
    "drain-sync-2": partial(drains.drain, coroutines=False, processes=2),
    "drain-async-2": partial(drains.drain, coroutines=True, processes=2),
    "latency-same": partial(latencies.latency, elsewhere=False),
    "latency-other": partial(latencies.latency, elsewhere=True),
    "backlog": endurance.backlog,
    "history": endurance.history,
    "snapshot": endurance.snapshot,
    "memory": endurance.memory,
    "chains": compositions.chains,
    "batch": compositions.batch,
    "stream": compositions.stream,
    "gates": gates.gates,
    "rate": gates.rate,
    "fairness": fairness.fairness,
    "fairness-drain": fairness.fairness_drain,
    "streams": fairness.streams,
    "sqlite-enqueue": submissions.sqlite_enqueue,
    "sqlite-drain": drains.sqlite_drain,
    "mariadb-drain": partial(drains.other_store_drain, store="mariadb"),
    "mongodb-drain": partial(drains.other_store_drain, store="mongodb"),
    "counts": count_per_job,
    "composition-counts": compositions.composition_counts,
    "sizing": sizing.sizing,
    "footprint": footprint.footprint,
}
#: What an earlier commit can be measured on beside this one; the other workloads compare Ratchet with itself.
SIDE_BY_SIDE = [
    "drain-sync-1",
    "drain-async-1",
    "enqueue-sync",
    "enqueue-async",
    "bulk",
    "latency-same",
    "latency-other",
    "sqlite-enqueue",
    "sqlite-drain",
]


def main() -> int:
    """Run what was asked for; 1 if a target was measured and missed and ``--strict`` was given."""
    chosen = _arguments()
    if chosen.combine:
        write_page(combined(chosen.combine))
        keep(chosen.combine)
        return 0
    results = Results()
    begun = time.time()
    with ExitStack() as stack:
        base = [stack.enter_context(earlier(chosen.base))] if chosen.base else []
        beside = [equipped(part) for part in chosen.beside]
        bench = Bench(
            contenders=[ratchet(), *base, *beside, *(peer(name) for name in chosen.peers)],
            places=_places(chosen, stack),
            rounds=chosen.rounds,
            scale=chosen.scale,
            minutes=chosen.minutes,
            results=results,
            say=lambda text: print(f"  {text}", file=sys.stderr, flush=True),
        )
        for name in chosen.only:
            print(f"{name} ...", file=sys.stderr, flush=True)
            try:
                WORKLOADS[name](bench)
            except SubjectFailed as error:
                print(f"{name}: {error}", file=sys.stderr)
            except KeyboardInterrupt:
                print("interrupted; what was measured so far:", file=sys.stderr)
                break
    facts = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun)),
        "minutes": round((time.time() - begun) / 60, 1),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "command": " ".join(
            ["python -m bench", *("URL" if "://" in word else word for word in sys.argv[1:])]
        ),
        "scale": chosen.scale,
        "rounds": chosen.rounds,
    }
    targets = [
        *TARGETS,
        *(target for contender in base for target in unchanged(results, contender.name)),
        *(target for contender in beside for target in priced(results, contender.name)),
    ]
    missed = print_tables(results, targets)
    if not chosen.dry:
        path = write_run(results, targets, facts)
        print(f"written to {path}", file=sys.stderr)
        if chosen.docs:
            write_page(combined([path]))
            keep([path])
    return 1 if missed and chosen.strict else 0


def _places(chosen: argparse.Namespace, stack: ExitStack) -> dict[str, Places]:
    """Where stores are; servers of other products are started only for the workloads that name them."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-bench-"))
    places = {
        "postgresql": Places("postgresql", stack.enter_context(postgresql_server(chosen.url))),
        "sqlite": Places("sqlite", chosen.directory or folder),
    }
    if "mariadb-drain" in chosen.only:
        places["mariadb"] = Places("mariadb", stack.enter_context(mariadb_server(chosen.mariadb_url)))
    if "mongodb-drain" in chosen.only:
        places["mongodb"] = Places("mongodb", stack.enter_context(mongodb_server(chosen.mongodb_url)))
    return places


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--url", help="a PostgreSQL server to make databases on; without it, one of our own")
    parser.add_argument("--mariadb-url", help="a MariaDB or MySQL server; without it, one of our own")
    parser.add_argument("--mongodb-url", help="a MongoDB replica set; without it, one of our own")
    parser.add_argument("--directory", help="where SQLite files are made; by default the temporary directory")
    parser.add_argument("--peers", default=[], type=_names(KNOWN), help=f"of {', '.join(KNOWN)}")
    parser.add_argument(
        "--base",
        type=_commit,
        metavar="REF",
        help="measure this commit of Ratchet beside the working tree, in the same rounds; "
        f"without --only, these workloads: {', '.join(SIDE_BY_SIDE)}",
    )
    parser.add_argument(
        "--beside",
        default=[],
        type=_names(PARTS),
        help=f"measure Ratchet with one of these parts beside it, in the same rounds: {', '.join(PARTS)}",
    )
    parser.add_argument("--only", type=_names(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 makes everything a tenth as large")
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="how long the snapshot is held; 5 for the target"
    )
    parser.add_argument(
        "--docs",
        action="store_true",
        help="write the tables and the picture into docs/, and keep the run in bench/results",
    )
    parser.add_argument(
        "--combine",
        nargs="+",
        type=Path,
        help="measure nothing; write the docs from these runs, and keep them in bench/results",
    )
    parser.add_argument("--dry", action="store_true", help="write no files")
    parser.add_argument("--strict", action="store_true", help="exit code 1 where a target is missed")
    chosen = parser.parse_args()
    if (chosen.base or chosen.beside) and chosen.docs:
        parser.error(
            "--docs writes the page about Ratchet and its peers; it has no place for --base and --beside"
        )
    if chosen.only is None:
        chosen.only = SIDE_BY_SIDE if chosen.base or chosen.beside else list(WORKLOADS)
    return chosen


def _commit(ref: str) -> str:
    try:
        return commit(ref)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _names(known: object) -> object:
    def split(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:  # type: ignore[operator]
                raise argparse.ArgumentTypeError(f"{name} is not one of {', '.join(known)}")  # type: ignore[arg-type]
        return names

    return split


if __name__ == "__main__":
    sys.exit(main())
