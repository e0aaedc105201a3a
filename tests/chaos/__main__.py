"""``python -m tests.chaos [--scenarios kill,freeze] [--stores sqlite,mysql] [--short] [--write] [--seed 7 --seeds 20]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos import report
from tests.chaos.catalog import CATALOG
from tests.chaos.history import Row
from tests.chaos.scenario import Scenario
from tests.support.store_urls import KINDS


def main() -> int:
    """Play what was asked for, one after the other; 1 if a promise was broken."""
    asked = _arguments()
    broken = 0
    print(report.head(), flush=True)
    for scenario in asked.scenarios:
        for kind in asked.stores:
            if kind in scenario.left_out:
                print(f"{scenario.name} is not played on {kind}: {scenario.left_out[kind]}", flush=True)
                continue
            for seed in range(asked.seed, asked.seed + asked.seeds) if asked.seed is not None else [None]:
                row = _play(scenario, kind, short=asked.short, seed=seed)
                broken += row is None or bool(row.faults())
            if asked.write and row is not None:
                report.update([row], [(name, kind) for name in CATALOG for kind in KINDS])
    return 1 if broken else 0


def _play(scenario: Scenario, kind: str, *, short: bool, seed: int | None) -> Row | None:
    folder = Path(tempfile.mkdtemp(prefix=f"ratchet-chaos-{scenario.name}-{kind}-"))
    begun = time.monotonic()
    try:
        row = scenario.run(kind, folder, rounds=scenario.few if short else None, seed=seed)
    except Exception as error:  # the next play has a right to its turn
        print(f"{scenario.name} on {kind} did not come to its end: {error}\nkept: {folder}", flush=True)
        return None
    print(f"{report.line_of(row)} {time.monotonic() - begun:.0f} s {'; '.join(row.notes)}", flush=True)
    if row.faults():
        print(f"BROKEN: {row.faults()}\nkept: {folder}", flush=True)
    else:
        _remove(folder)
    return row


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--scenarios", type=_chosen, default=list(CATALOG.values()), help=", ".join(CATALOG))
    parser.add_argument("--stores", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--short", action="store_true", help="as few rounds as `make test` plays")
    parser.add_argument(
        "--seed", type=int, help="for scenarios that decide by dice; without it, another one each time"
    )
    parser.add_argument("--seeds", type=int, default=1, help="play so many seeds, from --seed on")
    parser.add_argument("--write", action="store_true", help="put the rows into the documentation")
    return parser.parse_args()


def _chosen(text: str) -> list[Scenario]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in CATALOG]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no such scenario: {', '.join(unknown)}; there are {', '.join(CATALOG)}"
        )
    return [CATALOG[name] for name in names]


if __name__ == "__main__":
    sys.exit(main())
