"""`MemoryStore`: the whole store contract in plain Python, for tests and simulations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ratchet.model.clock import SystemClock
from ratchet.model.cluster import UnreadableRow
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.shield import bracketed
from ratchet.spi.store import Capabilities, JobStore
from ratchet.stores.memory.batches import MemoryBatches
from ratchet.stores.memory.claims import MemoryClaims
from ratchet.stores.memory.cluster import MemoryCluster
from ratchet.stores.memory.dead_letters import MemoryDeadLetters
from ratchet.stores.memory.history import MemoryHistory
from ratchet.stores.memory.invariants import broken_invariants
from ratchet.stores.memory.jobs import MemoryJobs
from ratchet.stores.memory.permits import MemoryPermits
from ratchet.stores.memory.recurring import MemoryRecurring
from ratchet.stores.memory.signals import MemorySignals
from ratchet.stores.memory.state import State, Transaction
from ratchet.stores.memory.streams import MemoryStreams
from ratchet.stores.memory.transitions import MemoryTransitions
from ratchet.stores.memory.workflows import MemoryWorkflows


class MemoryStore(
    MemoryJobs,
    MemoryClaims,
    MemoryTransitions,
    MemoryWorkflows,
    MemoryBatches,
    MemoryRecurring,
    MemoryHistory,
    MemoryCluster,
    MemoryPermits,
    MemoryDeadLetters,
    MemorySignals,
    MemoryStreams,
):
    """
    A `JobStore` that lives and dies with this object. `ratchet.spi.store` says what each method does.

    Deterministic: the same calls give the same answers. It reads a clock only for `database_time`
    (*database_clock*, the machine's by default), and waits only where another thread's open
    transaction has the row, at most *lock_wait*; a simulation in one thread passes zero.
    """

    name = "memory"

    def __init__(
        self,
        database_clock: Callable[[], datetime] | None = None,
        *,
        lock_wait: timedelta = timedelta(seconds=5),
    ) -> None:
        self.capabilities = Capabilities(survives_restart=False, several_processes=False)
        self._state = State(lock_wait=lock_wait, database_time=database_clock or SystemClock().now)

    def migrate(self) -> list[str]:
        """There is no schema."""
        return []

    def check_schema(self) -> None:
        """There is no schema, so all is well."""

    def unreadable(self) -> list[UnreadableRow]:
        """None: nobody but this code writes here."""
        return []

    def begin(self, *, within: object | None = None) -> AbstractContextManager[Transaction]:
        """
        A transaction: what is done ``within=`` it is done at its end, whole, or not at all.

        Until then nobody sees it, and whoever wants to write the same rows waits.
        """
        return bracketed(self._begin(within))

    @contextmanager
    def _begin(self, within: object | None) -> Iterator[Transaction]:
        if within is not None:
            yield self._state.transaction(within)
            return
        transaction = self._state.begin()
        try:
            yield transaction
        except BaseException:
            self._state.rollback(transaction)
            raise
        self._state.commit(transaction)

    def coordinator(self) -> ClusterCoordinator | None:
        """None: there is no other process to wake."""
        return None

    def close(self) -> None:
        """Nothing to free; the jobs stay until the object goes."""

    # --- for tests ------------------------------------------------------------------------------

    def ledger(self, name: str) -> list[object]:
        """What committed transactions have written to this ledger (`Transaction.write`), in commit order."""
        return list(self._state.ledgers.get(name, ()))

    def check_invariants(self) -> None:
        """Raise AssertionError, naming every rule that the tables break."""
        broken = self._state.run(lambda: broken_invariants(self._state))
        if broken:
            raise AssertionError("the store is inconsistent:\n" + "\n".join(f"- {rule}" for rule in broken))


if TYPE_CHECKING:
    _proof: JobStore = MemoryStore()
