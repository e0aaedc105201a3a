"""
Metrics of a worker's processes: each child writes a snapshot of its own, and the supervisor puts them together.

A file for each process, replaced as a whole, so that a reader never sees half of one; a pipe would be too small for it. The supervisor
answers from the last snapshots while a job holds the interpreter of a child.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ratchet.scheduler import Scheduler


class Family(Struct, frozen=True):
    """One metric with all of its samples: the sample's name, its labels and its value."""

    name: str
    help: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


class Recorder:
    """In a child: measures the node, and writes what prometheus_client has collected here, also the application's own metrics."""

    def __init__(self, scheduler: Scheduler, folder: str) -> None:
        client = import_module("prometheus_client")
        self._registries = [client.CollectorRegistry(), client.REGISTRY]
        import_module("ratchet.contrib.prometheus").instrument(scheduler, self._registries[0])
        self._path = Path(folder) / str(os.getpid())

    def write(self) -> None:
        """Replace the snapshot of this process."""
        found: dict[str, Family] = {}
        for registry in self._registries:
            for family in registry.collect():
                samples = [(one.name, one.labels, one.value) for one in family.samples]
                # An application that measures its scheduler itself has the same names in its own registry.
                found.setdefault(family.name, Family(family.name, family.documentation, family.type, samples))
        partial = self._path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(list(found.values())))
        partial.replace(self._path)


class Snapshots:
    """In the supervisor: a collector for prometheus_client over the snapshots of the processes that live."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.living: Sequence[tuple[int, int]] = ()  # number of the slot and process id

    def collect(self) -> Iterator[Any]:
        """Each metric once, with the samples of all processes; ``process`` says which slot one belongs to."""
        metric = import_module("prometheus_client.core").Metric
        families: dict[str, Any] = {}
        for slot, pid in self.living:
            for family in self._read(pid):
                into = families.get(family.name)
                if into is None:
                    into = families[family.name] = metric(family.name, family.help, family.kind)
                for name, labels, value in family.samples:
                    into.add_sample(name, {**labels, "process": str(slot)}, value)
        yield from families.values()

    def describe(self) -> Sequence[Any]:
        """What there is, is known when it is collected."""
        return ()

    def forget(self, pid: int) -> None:
        """A process has ended."""
        (self._folder / str(pid)).unlink(missing_ok=True)

    def _read(self, pid: int) -> list[Family]:
        try:
            return msgspec.json.decode((self._folder / str(pid)).read_bytes(), type=list[Family])
        except (OSError, msgspec.DecodeError):
            return []  # it has not written one yet
