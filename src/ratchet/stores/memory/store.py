"""`MemoryStore`: the whole store contract in plain Python, for tests and simulations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING

from ratchet.model.clock import SystemClock
from ratchet.model.cluster import UnreadableRow
from ratchet.model.storage import StoreSize, TableSize
from ratchet.model.upgrades import UpgradePlan
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.shield import bracketed
from ratchet.spi.store import Capabilities, JobStore
from ratchet.stores.auditing import always
from ratchet.stores.memory.audit import MemoryAudit, by_hand
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
from ratchet.stores.memory.stored_values import MemoryStoredValues
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
    MemoryStoredValues,
    MemoryAudit,
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
        self.capabilities = Capabilities(survives_restart=False, several_processes=False, shows_values=True)
        self._state = State(lock_wait=lock_wait, database_time=database_clock or SystemClock().now)

    # --- what people change, with the entry of their verb in the audit log -----------------------

    cancel = by_hand(MemoryTransitions.cancel)
    pause = by_hand(MemoryTransitions.pause)
    resume = by_hand(MemoryTransitions.resume)
    retry = by_hand(MemoryTransitions.retry)
    reschedule = by_hand(MemoryJobs.reschedule)
    set_priority = by_hand(MemoryJobs.set_priority)
    replace = by_hand(MemoryJobs.replace)
    delete = by_hand(MemoryJobs.delete)
    cancel_matching = by_hand(MemoryJobs.cancel_matching)
    retry_matching = by_hand(MemoryJobs.retry_matching)
    cancel_batch = by_hand(MemoryBatches.cancel_batch)
    retry_failed = by_hand(MemoryBatches.retry_failed)
    send_signal = by_hand(MemorySignals.send_signal)
    upsert_schedule = by_hand(MemoryRecurring.upsert_schedule)
    remove_schedule = by_hand(MemoryRecurring.remove_schedule)
    pause_schedule = by_hand(MemoryRecurring.pause_schedule)
    resume_schedule = by_hand(MemoryRecurring.resume_schedule)
    trigger = by_hand(MemoryRecurring.trigger)
    pause_queue = by_hand(MemoryStreams.pause_queue)
    resume_queue = by_hand(MemoryStreams.resume_queue)
    set_limit = by_hand(MemoryPermits.set_limit, always)
    remove_limit = by_hand(MemoryPermits.remove_limit)
    save_breaker = by_hand(MemoryPermits.save_breaker)
    deregister = by_hand(MemoryCluster.deregister, always)
    request_of_node = by_hand(MemoryCluster.request_of_node)
    archive = by_hand(MemoryHistory.archive)
    purge_dead_letters = by_hand(MemoryJobs.purge_dead_letters)
    purge_logs = by_hand(MemoryHistory.purge_logs)
    purge_executions = by_hand(MemoryHistory.purge_executions)
    purge_fires = by_hand(MemoryRecurring.purge_fires)
    purge_archive = by_hand(MemoryHistory.purge_archive)
    swap_values = by_hand(MemoryStoredValues.swap_values)
    delete_dead_letters = by_hand(MemoryJobs.delete_dead_letters, itemgetter(0))

    # --- lifecycle ------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """There is no schema."""
        return []

    def check_schema(self) -> None:
        """There is no schema, so all is well."""

    def upgrade_plan(self) -> UpgradePlan:
        """There is no schema, so nothing is missing."""
        return UpgradePlan()

    def roll_back_schema(self) -> list[str]:
        """There is no schema."""
        return []

    def unreadable(self) -> list[UnreadableRow]:
        """None: nobody but this code writes here."""
        return []

    def size(self) -> StoreSize:
        """Rows only: nobody knows what an object of Python takes."""
        state = self._state
        rows = {
            "scheduler_job": len(state.jobs),
            "scheduler_job_execution": len(state.executions),
            "scheduler_job_log": len(state.logs),
            "scheduler_node": len(state.nodes),
        }
        return StoreSize.of([TableSize(name=name, rows=count) for name, count in rows.items()])

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
