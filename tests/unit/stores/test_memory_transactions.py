"""Transactions of the in-memory store: what others see of them, and when."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest

from ratchet.model.errors import BusinessKeyBusy, ConfigurationError, Conflict, StoreError, SubmissionBlocked
from ratchet.model.status import Busy, JobStatus
from tests.unit.stores.memory_shop import NOW, Shop, content, edge
from tests.unit.stores.test_memory_atomicity import Broken


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.store.check_invariants()


class TestTransactions:
    def test_nobody_sees_it_before_the_commit(self, shop: Shop) -> None:
        """Inserted and completed inside: both are there after the block, and not a moment before."""
        running, new = shop.run(shop.spec()), shop.spec()
        with shop.store.begin() as transaction:
            shop.submit(new, within=transaction)
            assert shop.end(running, within=transaction).won
            transaction.write("effects", "charged")
            assert shop.store.get(new.job_id) is None
            assert shop.status(running) is JobStatus.RUNNING
            assert shop.claim() == []
            assert shop.store.ledger("effects") == []
        assert (shop.status(new), shop.status(running)) == (JobStatus.PENDING, JobStatus.SUCCEEDED)
        assert shop.store.ledger("effects") == ["charged"]

    def test_an_error_discards_everything(self, shop: Shop) -> None:
        """Jobs, keys, completions and the ledger of a rolled-back block never were."""
        running = shop.run(shop.spec())
        before = content(shop.store)

        def charge_and_stumble() -> None:
            with shop.store.begin() as transaction:
                shop.submit(shop.spec(business_key="k", idempotency_key="i"), within=transaction)
                shop.end(running, within=transaction)
                transaction.write("effects", "charged")
                raise Broken

        with pytest.raises(Broken):
            charge_and_stumble()
        assert content(shop.store) == before
        assert shop.store.ledger("effects") == []
        shop.submit(shop.spec(business_key="k", idempotency_key="i"))

    def test_it_sees_its_own_writes(self, shop: Shop) -> None:
        """The second submission of a key inside one block is answered by the first."""
        first, second = shop.spec(idempotency_key="i"), shop.spec(idempotency_key="i")
        with shop.store.begin() as transaction:
            shop.submit(first, within=transaction)
            (answer,) = shop.store.insert([second], now=NOW, within=transaction)
            assert (answer.job_id, answer.created) == (first.job_id, False)
        assert shop.store.counts()[JobStatus.PENDING] == 1

    def test_it_stays_usable_after_a_busy_key(self, shop: Shop) -> None:
        """BusinessKeyBusy inside the block: what was done before and after it commits."""
        shop.submit(shop.spec(business_key="k"))
        before, after = shop.spec(), shop.spec()
        with shop.store.begin() as transaction:
            shop.submit(before, within=transaction)
            with pytest.raises(BusinessKeyBusy):
                shop.submit(shop.spec(business_key="k"), within=transaction)
            shop.submit(after, within=transaction)
        assert {shop.status(before), shop.status(after)} == {JobStatus.PENDING}
        assert shop.store.counts()[JobStatus.PENDING] == 3

    def test_a_key_of_an_open_transaction_blocks_others(self, shop: Shop) -> None:
        """With no time to wait the other submission is blocked, and is answered after the commit."""
        first, second = shop.spec(idempotency_key="i"), shop.spec(idempotency_key="i")
        with shop.store.begin() as transaction:
            shop.submit(first, within=transaction)
            with pytest.raises(SubmissionBlocked):
                shop.submit(second)
        (answer,) = shop.store.insert([second], now=NOW)
        assert (answer.job_id, answer.created) == (first.job_id, False)
        assert shop.store.counts()[JobStatus.PENDING] == 1

    def test_the_loser_waits_and_gets_the_winner(self) -> None:
        """Two threads, one key: the second is answered when the first has committed, with the first's job."""
        shop = Shop(lock_wait=timedelta(seconds=30))
        winner, loser = shop.spec(idempotency_key="i"), shop.spec(idempotency_key="i")
        answers: list[UUID] = []
        with shop.store.begin() as transaction:
            shop.submit(winner, within=transaction)
            thread = threading.Thread(
                target=lambda: answers.extend(a.job_id for a in shop.store.insert([loser], now=NOW))
            )
            thread.start()
            thread.join(0.05)
            assert answers == []
        thread.join()
        assert answers == [winner.job_id]

    def test_a_locked_job_cannot_be_canceled_but_claims_pass_it_by(self, shop: Shop) -> None:
        """What an open transaction has written is locked: cancel waits (and gives up), a claim takes the next."""
        running, held, free = shop.run(shop.spec()), shop.spec(business_key="k"), shop.spec()
        shop.submit(held, free)
        with shop.store.begin() as transaction:
            shop.end(running, within=transaction)
            shop.submit(shop.spec(business_key="k", busy=Busy.REPLACE), within=transaction)
            with pytest.raises(Conflict):
                shop.store.cancel(running.job_id, reason="r", now=NOW)
            assert [claim.job_id for claim in shop.claim()] == [free.job_id]
        assert (shop.status(running), shop.status(held)) == (JobStatus.SUCCEEDED, JobStatus.CANCELED)

    def test_a_block_that_was_overtaken_is_refused_whole(self, shop: Shop) -> None:
        """Its answer rested on a job that another call has ended since: Conflict, and nothing is written."""
        parent, child = shop.spec(), shop.step()
        shop.submit(parent)

        def follow_a_parent_that_goes() -> None:
            with shop.store.begin() as transaction:
                shop.submit(child, edges=(edge(parent, child),), within=transaction)
                assert shop.store.delete(parent.job_id)

        with pytest.raises(Conflict):
            follow_a_parent_that_goes()
        assert shop.store.get(child.job_id) is None

    def test_joining_another_block_commits_with_that(self, shop: Shop) -> None:
        """begin(within=...) is the same transaction: the inner end commits nothing."""
        spec = shop.spec()
        with shop.store.begin() as outer:
            with shop.store.begin(within=outer) as inner:
                shop.submit(spec, within=inner)
            assert shop.store.get(spec.job_id) is None
        assert shop.status(spec) is JobStatus.PENDING

    def test_only_its_own_open_transactions_are_accepted(self, shop: Shop) -> None:
        """A connection, another store's transaction and one that has ended are refused, and nothing is stored."""
        with shop.store.begin() as ended:
            pass
        with pytest.raises(StoreError, match="ended"):
            shop.submit(shop.spec(), within=ended)
        with pytest.raises(StoreError, match="ended"):
            ended.write("effects", 1)
        with Shop().store.begin() as foreign, pytest.raises(StoreError):
            shop.submit(shop.spec(), within=foreign)
        with pytest.raises(ConfigurationError, match="begin"):
            shop.submit(shop.spec(), within=object())
        assert shop.store.counts()[JobStatus.PENDING] == 0
