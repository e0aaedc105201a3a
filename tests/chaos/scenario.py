"""A scenario: what is done to a cluster, on which stores, and how its history is judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.model.options import Options
from tests.chaos.history import Row, read_history
from tests.chaos.stage import Stage
from tests.services.server import Server
from tests.support.store_urls import KINDS


@dataclass(frozen=True)
class Scenario:
    """
    *play* hurts a stage for as long as *rounds* say, and returns when its load has stopped.

    *left_out* names the stores that it does not apply to, with the reason. *needs_server*: it hurts
    the server, so that it must have one of its own; *server*: not an ordinary one. *rounds* is for the table, *few* for the short version.
    *options* are the submitter's. *effects*, *retried*: as `read_history` has them; *read* judges instead of it.
    """

    name: str
    play: Callable[[Stage, int], None]
    rounds: int
    few: int = 1
    needs_server: bool = False
    server: Callable[[], Server] | None = None
    options: Options | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    effects: bool = True
    retried: bool = False
    patience: float = 180.0
    read: Callable[[str, Stage], Row] | None = None

    @property
    def stores(self) -> list[str]:
        return [kind for kind in KINDS if kind not in self.left_out]

    def run(
        self,
        kind: str,
        folder: Path,
        *,
        url: str | None = None,
        rounds: int | None = None,
        seed: int | None = None,
    ) -> Row:
        """Play it once and read its history. *seed* is for those that decide by dice."""
        with Stage(kind, folder, url, None if self.server is None else self.server(), self.options) as stage:
            stage.seed = random.randrange(10**6) if seed is None else seed
            self.play(stage, self.rounds if rounds is None else rounds)
            stage.wait_until_all_ended(self.patience)
            row = self._history(stage)
            if row.faults():
                (folder / "logs").write_text(stage.logs())
            return row

    def _history(self, stage: Stage) -> Row:
        if self.read is not None:
            return self.read(self.name, stage)
        return read_history(self.name, stage, effects=self.effects, retried=self.retried)


def only(*kinds: str, reason: str) -> dict[str, str]:
    """All stores but *kinds* are left out, for this reason."""
    return {kind: reason for kind in KINDS if kind not in kinds}
