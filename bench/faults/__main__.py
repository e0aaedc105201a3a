"""The command line: plays faults on subjects and prints, or with ``--write`` keeps, what happened."""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.faults.cluster import Cluster
from bench.faults.page import write_page
from bench.faults.subjects import SETTINGS, Subject, subject
from bench.faults.trials import FAULTS


def main() -> int:
    """Play what was asked for; 1 if a trial could not be played."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults", description="The same faults on Ratchet and its peers."
    )
    parser.add_argument("--peers", default=",".join(SETTINGS), help="who is hurt, with commas")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which faults, with commas")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=400, help="seconds to wait for a job to run again")
    parser.add_argument("--beside", type=int, default=4, help="how many trials run side by side")
    parser.add_argument(
        "--write", type=Path, help="a file that the trials are added to, one JSON document per line"
    )
    parser.add_argument(
        "--page", action="store_true", help="play nothing: write the tables of the docs from the kept trials"
    )
    given = parser.parse_args()
    if given.page:
        write_page()
        return 0
    subjects = [subject(name) for name in given.peers.split(",")]
    wanted = [
        (one, fault) for _ in range(given.rounds) for fault in given.faults.split(",") for one in subjects
    ]
    with ThreadPoolExecutor(given.beside) as pool:
        trials = list(pool.map(lambda each: played(*each, given.limit, given.write), wanted))
    return int(any("error" in trial for trial in trials))


def played(one: Subject, fault: str, limit: float, write: Path | None) -> dict[str, Any]:
    """One trial: who, what, when, with which versions, and what was seen."""
    trial: dict[str, Any] = {
        "peer": one.name,
        "fault": fault,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": one.versions,
        "limit": limit,
        "load": round(os.getloadavg()[0], 1),
    }
    try:
        with Cluster(one) as cluster:
            trial |= FAULTS[fault](cluster, limit)
    except RuntimeError as error:
        trial["error"] = str(error)
    print(json.dumps(trial), flush=True)
    if write is not None:
        with write.open("a") as kept:
            kept.write(json.dumps(trial) + "\n")
    return trial


if __name__ == "__main__":
    raise SystemExit(main())
