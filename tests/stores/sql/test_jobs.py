"""Submissions in SQL: what they cost, and races for keys and parents on real databases."""

from __future__ import annotations

from uuid import UUID

import pytest

from ratchet.model.claim import JobClaim
from ratchet.model.errors import BusinessKeyBusy, InvalidJob, SubmissionBlocked
from ratchet.model.job import Insertion, JobFilter, JobSpec
from ratchet.model.status import Busy, JobStatus, JobType
from tests.stores.counting import Statements
from tests.stores.sql_stores import SqlSteps, at_once

ROUNDS = 12


def insert(steps: SqlSteps, spec: JobSpec) -> Insertion | BusinessKeyBusy:
    """What a submission of one job says."""
    try:
        return steps.store.insert([spec], now=steps.now)[0]
    except BusinessKeyBusy as busy:
        return busy


def live_holders(steps: SqlSteps, key: str) -> list[UUID]:
    """The jobs with this business key that have not ended."""
    live = [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.PAUSED, JobStatus.WAITING]
    return [record.job_id for record in steps.store.find(JobFilter(business_key=key, statuses=live))]


class TestCost:
    def test_a_plain_job_is_one_statement_on_postgresql(
        self, postgresql: SqlSteps, statements: Statements
    ) -> None:
        """Cold row and queue row go in together; streams are known after the first submission."""
        postgresql.submit()
        assert len(statements.of(postgresql.submit)) == 1

    def test_a_plain_job_is_two_statements_elsewhere(self, steps: SqlSteps, statements: Statements) -> None:
        """Nobody looks whether it is there already: it is refused then, and takes the longer way."""
        steps.submit()
        spec = steps.spec()
        sent = statements.of(lambda: steps.store.insert([spec], now=steps.now))
        assert len(sent) == (1 if steps.store.database.dialect.autocommit is not None else 2)
        again = statements.of(lambda: steps.store.insert([spec], now=steps.now))
        assert len(again) > len(sent)
        assert steps.store.count(JobFilter()) == 2

    def test_a_thousand_jobs_cost_what_two_cost(self, steps: SqlSteps, statements: Statements) -> None:
        """The number of statements of a submission does not depend on the number of its jobs."""
        steps.submit()
        two = statements.of(lambda: steps.submit_many(2))
        many = statements.of(lambda: steps.submit_many(1000))
        assert len(two) <= 3
        # PostgreSQL takes a bulk by COPY, which passes by the statements that are counted here.
        copied = steps.store.database.dialect.name == "postgresql"
        assert len(many) == (0 if copied else len(two))

    def test_keys_tags_and_edges_cost_a_fixed_number(self, steps: SqlSteps, statements: Statements) -> None:
        """A graph with everything in it: the same statements for one chain and for fifty."""

        def chains(count: int) -> None:
            roots = [steps.spec(idempotency_key=f"i-{count}-{n}", tags=("t",)) for n in range(count)]
            keyed = [steps.spec(business_key=f"b-{count}-{n}") for n in range(count)]
            children = [steps.child(root_id=root.job_id) for root in roots]
            edges = [steps.edge(root, child) for root, child in zip(roots, children, strict=True)]
            steps.insert([*roots, *keyed, *children], edges)

        chains(1)
        assert len(statements.of(lambda: chains(2))) == len(statements.of(lambda: chains(50)))

    def test_a_column_that_holds_only_defaults_is_not_sent(
        self, postgresql: SqlSteps, statements: Statements
    ) -> None:
        """A plain job sends ten columns; one with a timeout sends that too."""
        postgresql.submit()
        (plain,) = statements.of(postgresql.submit)
        assert "timeout_us" not in plain


class TestIdempotencyRace:
    def test_one_job_and_nobody_is_refused(self, shared: SqlSteps) -> None:
        """Eight submissions of one key at once: one is stored, all others are told its id."""
        for number in range(ROUNDS):
            specs = shared.specs(8, idempotency_key=f"request-{number}")
            answers = at_once(*[lambda spec=spec: insert(shared, spec) for spec in specs])
            assert all(isinstance(answer, Insertion) for answer in answers)
            winners = [a.job_id for a in answers if isinstance(a, Insertion) and a.created]
            assert len(winners) == 1
            assert {a.job_id for a in answers if isinstance(a, Insertion)} == set(winners)
        assert shared.store.counts()[JobStatus.PENDING] == ROUNDS

    def test_bulks_that_overlap_do_not_deadlock(self, shared: SqlSteps) -> None:
        """Two bulks with the same keys in opposite order: each key is stored once, no conflict is reported."""
        for number in range(ROUNDS):
            keys = [f"{number}-{position}" for position in range(20)]
            bulks = [
                [shared.spec(idempotency_key=key, business_key=key, busy=Busy.RETURN) for key in order]
                for order in (keys, keys[::-1])
            ]
            at_once(*[lambda bulk=bulk: shared.store.insert(bulk, now=shared.now) for bulk in bulks])
        assert shared.store.counts()[JobStatus.PENDING] == ROUNDS * 20

    def test_sent_again_while_the_first_try_is_still_on_its_way(self, shared: SqlSteps) -> None:
        """The same specs at the same moment, as after a lost answer: stored once, both are told so."""
        for number in range(ROUNDS):
            spec = shared.spec(idempotency_key=f"i{number}", business_key=f"b{number}", tags=("x",))
            answers = at_once(*[lambda spec=spec: insert(shared, spec)] * 4)
            assert [(a.job_id, a.created) for a in answers if isinstance(a, Insertion)] == [
                (spec.job_id, True)
            ] * 4
        assert shared.store.counts()[JobStatus.PENDING] == ROUNDS
        assert shared.sql("SELECT count(*) AS jobs FROM scheduler_job_queue") == [(ROUNDS,)]


class TestBusinessKeyRace:
    def test_one_is_stored_the_others_are_told_who(self, shared: SqlSteps) -> None:
        """Eight submissions of one key: one handle, seven BusinessKeyBusy that name it."""
        for number in range(ROUNDS):
            specs = shared.specs(8, business_key=f"invoice-{number}")
            answers = at_once(*[lambda spec=spec: insert(shared, spec) for spec in specs])
            stored = [answer.job_id for answer in answers if isinstance(answer, Insertion)]
            holders = {answer.holder for answer in answers if isinstance(answer, BusinessKeyBusy)}
            assert (len(stored), holders) == (1, set(stored))

    def test_replacements_leave_one_live_holder(self, shared: SqlSteps) -> None:
        """Replacing, returning and raising against each other: one live job has the key, and holds the reservation."""
        for number in range(ROUNDS):
            key = f"k{number}"
            shared.submit(business_key=key)
            specs = [
                shared.spec(business_key=key, busy=busy)
                for busy in (Busy.REPLACE, Busy.REPLACE, Busy.REPLACE, Busy.RETURN, Busy.RAISE, Busy.REPLACE)
            ]
            at_once(*[lambda spec=spec: insert(shared, spec) for spec in specs])
            holders = live_holders(shared, key)
            reserved = shared.sql(
                "SELECT job_id FROM scheduler_business_key_reservation WHERE business_key = :key", key=key
            )
            assert len(holders) == 1
            assert reserved == [(holders[0],)]

    def test_replacement_against_the_holder_s_success(self, shared: SqlSteps) -> None:
        """The holder ends in the moment it is replaced: never two live holders, never a key without a live one."""
        for number in range(ROUNDS):
            key = f"k{number}"
            claim = shared.running(business_key=key)
            spec = shared.spec(business_key=key, busy=Busy.REPLACE)
            completion = shared.completion(claim)
            at_once(
                lambda spec=spec: insert(shared, spec),
                lambda completion=completion: shared.store.complete([completion], now=shared.now),
            )
            shared.store.settle([claim], now=shared.now)
            stored = shared.store.get(spec.job_id) is not None
            assert live_holders(shared, key) == ([spec.job_id] if stored else [])
            if not stored:  # it met the running holder and canceled it
                assert shared.status(claim.job_id) is JobStatus.CANCELED
            assert shared.store.insert([shared.spec(business_key=f"{key}-other")], now=shared.now)[0].created


class TestKeysInOneCall:
    def test_the_second_of_a_returned_key_stands_for_the_first(self, steps: SqlSteps) -> None:
        """RETURN twice in one call: the second is answered with the first, or with whoever stands for it."""
        first, second = steps.specs(2, business_key="k", busy=Busy.RETURN)
        answers = steps.store.insert([first, second], now=steps.now)
        assert [(a.job_id, a.created) for a in answers] == [(first.job_id, True), (first.job_id, False)]
        again = steps.store.insert(steps.specs(2, business_key="k", busy=Busy.RETURN), now=steps.now)
        assert [(a.job_id, a.created) for a in again] == [(first.job_id, False)] * 2

    def test_what_is_not_stored_reserves_and_enters_nothing(self, steps: SqlSteps) -> None:
        """A graph left out for one of its keys gives back the other keys it had taken."""
        steps.submit(business_key="taken")
        root = steps.spec(business_key="taken", busy=Busy.RETURN, idempotency_key="i")
        step = steps.child(root_id=root.job_id, business_key="free", idempotency_key="j")
        answers = steps.store.insert([root, step], now=steps.now, edges=[steps.edge(root, step)])
        assert [answer.created for answer in answers] == [False, False]
        assert steps.store.insert([steps.spec(business_key="free", idempotency_key="i")], now=steps.now)[
            0
        ].created
        assert steps.store.insert([steps.spec(idempotency_key="j")], now=steps.now)[0].created

    def test_sent_again_after_the_key_went_to_somebody_else(self, steps: SqlSteps) -> None:
        """The answer was lost, the job has ended, another holds its key: it is stored, and takes nothing away."""
        for busy in Busy:
            spec = steps.spec(business_key="k", busy=busy)
            steps.insert([spec])
            steps.end(steps.claim_job(spec.job_id))
            other = steps.submit(business_key="k")
            answer = steps.store.insert([spec], now=steps.now)[0]
            assert (answer.job_id, answer.created) == (spec.job_id, True)
            assert live_holders(steps, "k") == [other]
            steps.store.cancel(other, reason="r", now=steps.now)

    def test_sent_again_after_its_end_it_reserves_nothing(self, steps: SqlSteps) -> None:
        """An ended job that is submitted again holds no key afterwards."""
        spec = steps.spec(business_key="k")
        steps.insert([spec])
        steps.end(steps.claim_job(spec.job_id))
        assert steps.store.insert([spec], now=steps.now)[0].created
        assert steps.store.insert([steps.spec(business_key="k")], now=steps.now)[0].created


class TestEdgeRace:
    @pytest.mark.parametrize("ending", ["success", "failure", "cancel"])
    def test_a_child_that_comes_as_its_parent_ends(self, shared: SqlSteps, ending: str) -> None:
        """Whichever commits first: the child is released or canceled, and never waits for a parent that is gone."""
        for _ in range(ROUNDS):
            claim = shared.running()
            child = shared.child()
            edge = shared.edge(claim.job_id, child)

            def end(claim: JobClaim = claim) -> object:
                store = shared.store
                if ending == "cancel":
                    return store.cancel(claim.job_id, reason="r", now=shared.now)
                decision = shared.success() if ending == "success" else shared.failure()
                return store.complete([shared.completion(claim, decision)], now=shared.now)

            at_once(end, lambda c=child, e=edge: shared.store.insert([c], now=shared.now, edges=[e]))
            expected = JobStatus.PENDING if ending == "success" else JobStatus.CANCELED
            assert shared.status(child.job_id) is expected
            shared.store.cancel(child.job_id, reason="r", now=shared.now)

    def test_joins_of_two_parents_that_end_together(self, shared: SqlSteps) -> None:
        """A join is submitted while both parents end in one mixed completion: no deadlock, the join is settled."""
        for _ in range(ROUNDS):
            one, two = shared.running(), shared.running()
            join = shared.child(needs=2, type=JobType.WORKFLOW_JOIN)
            edges = [shared.edge(one.job_id, join), shared.edge(two.job_id, join)]
            completions = [shared.completion(two), shared.completion(one, shared.failure())]
            at_once(
                lambda c=completions: shared.store.complete(c, now=shared.now),
                lambda j=join, e=edges: shared.store.insert([j], now=shared.now, edges=e),
            )
            assert shared.status(join.job_id) is JobStatus.CANCELED


class TestRefusals:
    def test_an_edge_from_nowhere(self, steps: SqlSteps) -> None:
        """A parent that was never stored would never end: refused, and nothing is stored."""
        child = steps.child()
        with pytest.raises(InvalidJob, match="does not exist"):
            steps.store.insert([child], now=steps.now, edges=[steps.edge(steps.spec(), child)])
        assert steps.store.get(child.job_id) is None

    @pytest.mark.parametrize(
        ("changes", "edges", "words"),
        [
            ({"status": JobStatus.WAITING}, 0, "nothing will ever release it"),
            ({"status": JobStatus.WAITING, "needs": 3}, 2, "needs 3 of its 2"),
            ({"status": JobStatus.WAITING, "needs": 0}, 2, "needs 0 of its 2"),
            ({}, 1, "submit it as WAITING"),
            ({"status": JobStatus.FAILED}, 0, "cannot be submitted as FAILED"),
        ],
    )
    def test_a_job_that_contradicts_its_edges(
        self, steps: SqlSteps, changes: dict[str, object], edges: int, words: str
    ) -> None:
        """What could never run, or would run too early, is refused before anything is written."""
        parents = steps.specs(edges)
        child = steps.spec(**changes)
        with pytest.raises(InvalidJob, match=words):
            steps.store.insert(
                [*parents, child], now=steps.now, edges=[steps.edge(parent, child) for parent in parents]
            )
        assert sum(steps.store.counts().values()) == 0

    def test_a_key_held_by_an_open_transaction(
        self, postgresql: SqlSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Waited for, then SubmissionBlocked; the caller's own transaction is still usable."""
        monkeypatch.setattr(postgresql.store.database.dialect, "lock_wait", 200)
        other = postgresql.another()
        with other.begin() as theirs:
            other.insert([postgresql.spec(business_key="k")], now=postgresql.now, within=theirs)
            with postgresql.store.begin() as mine:
                with pytest.raises(SubmissionBlocked, match="still open"):
                    postgresql.store.insert(
                        [postgresql.spec(business_key="k")], now=postgresql.now, within=mine
                    )
                answer = postgresql.store.insert([postgresql.spec()], now=postgresql.now, within=mine)
        assert postgresql.status(answer[0].job_id) is JobStatus.PENDING

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({}, "this submission has waited for too long for another transaction that is still open"),
            ({"business_key": "k"}, "the business key 'k' of this submission is held by another transaction"),
            (
                {"idempotency_key": "i"},
                "the idempotency key 'i' of this submission is held by another transaction",
            ),
        ],
    )
    def test_its_message_names_what_it_knows(
        self, postgresql: SqlSteps, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], words: str
    ) -> None:
        """An earlier try of the same submission whose commit has no answer, as with a standby that is away: no key is blamed."""
        monkeypatch.setattr(postgresql.store.database.dialect, "lock_wait", 200)
        other, spec = postgresql.another(), postgresql.spec(**changes)
        with other.begin() as theirs:
            other.insert([spec], now=postgresql.now, within=theirs)
            with postgresql.store.begin() as mine, pytest.raises(SubmissionBlocked) as caught:
                postgresql.store.insert([spec], now=postgresql.now, within=mine)
        assert str(caught.value).startswith(words)
        assert ("key" in str(caught.value)) == bool(changes)
        assert "whose commit the database has not answered yet" in str(caught.value)


class TestWithin:
    def test_busy_leaves_the_caller_s_transaction_as_it_was(self, steps: SqlSteps) -> None:
        """BusinessKeyBusy inside a caller's transaction: nothing of that call is stored, the rest commits."""
        holder = steps.submit(business_key="k")
        with steps.store.begin() as connection:
            before = steps.spec(business_key="before")
            steps.store.insert([before], now=steps.now, within=connection)
            refused = [steps.spec(idempotency_key="i"), steps.spec(business_key="k")]
            with pytest.raises(BusinessKeyBusy) as caught:
                steps.store.insert(refused, now=steps.now, within=connection)
        assert caught.value.holder == holder
        assert steps.status(before.job_id) is JobStatus.PENDING
        assert [steps.store.get(spec.job_id) for spec in refused] == [None, None]
        assert steps.store.insert([steps.spec(idempotency_key="i")], now=steps.now)[0].created

    def test_rolled_back_a_replacement_never_was(self, steps: SqlSteps) -> None:
        """The canceled holder, its dependants and its key come back with the caller's rollback."""
        holder = steps.submit(business_key="k")
        child = steps.child()
        steps.insert([child], [steps.edge(holder, child)])
        spec = steps.spec(business_key="k", busy=Busy.REPLACE)

        def replace_and_give_up() -> None:
            with steps.store.begin() as connection:
                assert steps.store.insert([spec], now=steps.now, within=connection)[0].replaced == holder
                raise RuntimeError("the caller changed its mind")

        with pytest.raises(RuntimeError):
            replace_and_give_up()
        assert steps.statuses([holder, child.job_id]) == [JobStatus.PENDING, JobStatus.WAITING]
        assert live_holders(steps, "k") == [holder]


class TestDelete:
    def test_a_join_is_canceled_with_one_of_its_parents(self, steps: SqlSteps) -> None:
        """It would start without that parent's result: it does not wait for the other one, and is not revived by it."""
        one, two = steps.specs(2)
        join = steps.child(needs=2)
        steps.insert([one, two, join], [steps.edge(one, join), steps.edge(two, join)])
        steps.end(steps.claim_job(one.job_id))
        assert steps.store.delete(one.job_id)
        steps.end(steps.claim_job(two.job_id))
        assert steps.status(join.job_id) is JobStatus.CANCELED

    def test_a_child_of_a_batch_counts_as_canceled(self, steps: SqlSteps) -> None:
        """Deleting the last open child finishes the batch."""
        batch, (child,) = steps.batch_of(1)
        assert steps.store.delete(child.job_id)
        assert steps.status(batch.parent.job_id) is JobStatus.PENDING


class TestSearch:
    def test_archived_and_live_jobs_are_one_list(self, steps: SqlSteps) -> None:
        """With the archive, pages go through both in one order, and counts add up."""
        ids = [steps.succeeded(tags=("x",)) for _ in range(3)]
        steps.advance(days=1)
        assert steps.store.archive(before=steps.now, limit=2, now=steps.now) == 2
        ids += steps.submit_many(3, tags=("x",))
        where = JobFilter(tags=["x"], include_archived=True)
        found, cursor = [], None
        while True:
            page = steps.store.find(where, limit=2, cursor=cursor)
            found += [record.job_id for record in page]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == ids[::-1]
        assert steps.store.count(where) == 6
        assert steps.store.count(JobFilter(tags=["x"])) == 4

    def test_a_cursor_that_is_none(self, steps: SqlSteps) -> None:
        """Anything but a cursor is refused with a hint."""
        with pytest.raises(InvalidJob, match="next_cursor"):
            steps.store.find(JobFilter(), cursor="page 2")
