"""The command line of the bench."""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial

from bench import workloads
from bench.conversation import SubjectFailed, ratchet
from bench.counts import count_per_job
from bench.environments import KNOWN, peer
from bench.measurement import Results
from bench.report import print_tables, write_documents
from bench.servers import Places, postgresql_server

WORKLOADS = {
    "enqueue-sync": workloads.enqueue_sync,
    "enqueue-async": workloads.enqueue_async,
    "bulk": workloads.bulk,
    "drain-sync-1": partial(workloads.drain, coroutines=False, processes=1),
    "drain-async-1": partial(workloads.drain, coroutines=True, processes=1),
    "drain-sync-2": partial(workloads.drain, coroutines=False, processes=2),
    "drain-async-2": partial(workloads.drain, coroutines=True, processes=2),
    "latency-same": partial(workloads.latency, elsewhere=False),
    "latency-other": partial(workloads.latency, elsewhere=True),
    "backlog": workloads.backlog,
    "history": workloads.history,
    "snapshot": workloads.snapshot,
    "memory": workloads.memory,
    "sqlite-enqueue": workloads.sqlite_enqueue,
    "sqlite-drain": workloads.sqlite_drain,
    "counts": count_per_job,
}


def main() -> int:
    """Run what was asked for; 1 if a target was measured and missed and ``--strict`` was given."""
    chosen = _arguments()
    results = Results()
    begun = time.time()
    with ExitStack() as stack:
        server = stack.enter_context(postgresql_server(chosen.url))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-bench-"))
        bench = workloads.Bench(
            contenders=[ratchet(), *(peer(name) for name in chosen.peers)],
            postgresql=Places("postgresql", server),
            sqlite=Places("sqlite", chosen.directory or folder),
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
            ["python -m bench", *("URL" if word == chosen.url else word for word in sys.argv[1:])]
        ),
        "scale": chosen.scale,
        "rounds": chosen.rounds,
    }
    missed = print_tables(results)
    if not chosen.dry:
        write_documents(results, facts, docs=chosen.docs)
    return 1 if missed and chosen.strict else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--url", help="a PostgreSQL server to make databases on; without it, one of our own")
    parser.add_argument("--directory", help="where SQLite files are made; by default the temporary directory")
    parser.add_argument("--peers", default=[], type=_names(KNOWN), help=f"of {', '.join(KNOWN)}")
    parser.add_argument(
        "--only", default=list(WORKLOADS), type=_names(WORKLOADS), help=f"of {', '.join(WORKLOADS)}"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 makes everything a tenth as large")
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="how long the snapshot is held; 5 for the target"
    )
    parser.add_argument("--docs", action="store_true", help="write the tables and the picture into docs/")
    parser.add_argument("--dry", action="store_true", help="write no files")
    parser.add_argument("--strict", action="store_true", help="exit code 1 where a target is missed")
    return parser.parse_args()


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
