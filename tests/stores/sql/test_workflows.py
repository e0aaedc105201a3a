"""Edges in SQL: joins under concurrency, and what a retry brings back to life."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

import pytest

from ratchet.model.composition import EdgeKind, EdgeState
from ratchet.model.decision import CompletionAnswer, Decision
from ratchet.model.job import JobSpec, SignalWait
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.sql.dependants.edges import FIND_EDGES_AND_NEEDS, SETTLE_EDGES_OF
from ratchet.stores.sql.dependants.releases import RELEASE_BY_EDGES
from tests.stores.counting import Statements
from tests.stores.sql_stores import SqlSteps, at_once

ROUNDS = 10
WAITING, PENDING, CANCELED = JobStatus.WAITING, JobStatus.PENDING, JobStatus.CANCELED


def join_of(steps: SqlSteps, parents: Sequence[JobSpec], needs: int, **changes: object) -> JobSpec:
    """A job that needs so many of these parents, stored with them."""
    join = steps.child(needs=needs, type=JobType.WORKFLOW_JOIN, **changes)
    steps.insert([*parents, join], [steps.edge(parent, join, position=n) for n, parent in enumerate(parents)])
    return join


def end(steps: SqlSteps, job_id: UUID, decision: Decision | None = None) -> None:
    """Claim a job and end it; SUCCEEDED unless a decision is given."""
    steps.end(steps.claim_job(job_id), decision)


class TestJoinRace:
    def test_parents_that_end_at_once_release_it_once(self, shared: SqlSteps) -> None:
        """Four parents succeed in four transactions: one of them releases the join, and says so."""
        for _ in range(ROUNDS):
            parents = shared.specs(4)
            join = join_of(shared, parents, needs=4)
            claims = {claim.job_id: claim for claim in shared.claim()}
            completions = [shared.completion(claims[parent.job_id]) for parent in parents]
            answers = at_once(
                *[lambda c=c: shared.store.complete([c], now=shared.now)[0] for c in completions]
            )
            assert [job for answer in answers for job in answer.released] == [join.job_id]
            end(shared, join.job_id)

    def test_success_and_failure_at_once(self, shared: SqlSteps) -> None:
        """All needed, one fails while the other succeeds: canceled once, whoever came last."""
        for _ in range(ROUNDS):
            parents = shared.specs(2)
            join = join_of(shared, parents, needs=2)
            claims = {claim.job_id: claim for claim in shared.claim()}
            completions = [
                shared.completion(claims[parents[0].job_id]),
                shared.completion(claims[parents[1].job_id], shared.failure()),
            ]
            answers = at_once(
                *[lambda c=c: shared.store.complete([c], now=shared.now)[0] for c in completions]
            )
            assert [one.job_id for answer in answers for one in answer.canceled] == [join.job_id]
            assert shared.status(join.job_id) is CANCELED

    def test_the_first_of_several_parents_releases_it_once(self, shared: SqlSteps) -> None:
        """Four parents succeed in four transactions, and one of them would do: it is released once, and said once."""
        for _ in range(ROUNDS):
            parents = shared.specs(4)
            join = join_of(shared, parents, needs=1)
            claims = {claim.job_id: claim for claim in shared.claim()}
            completions = [shared.completion(claims[parent.job_id]) for parent in parents]
            answers = at_once(
                *[lambda c=c: shared.store.complete([c], now=shared.now)[0] for c in completions]
            )
            assert [job for answer in answers for job in answer.released] == [join.job_id]
            end(shared, join.job_id)

    def test_cancel_of_the_join_against_its_release(self, shared: SqlSteps) -> None:
        """Canceled while its last parent ends: it is CANCELED, and never in the queue."""
        for _ in range(ROUNDS):
            (parent,) = shared.specs(1)
            join = join_of(shared, [parent], needs=1)
            completion = shared.completion(shared.claim_job(parent.job_id))
            at_once(
                lambda c=completion: shared.store.complete([c], now=shared.now),
                lambda j=join: shared.store.cancel(j.job_id, reason="r", now=shared.now),
            )
            assert shared.status(join.job_id) is CANCELED
            assert shared.claim() == []

    def test_failures_that_cascade_into_each_other(self, shared: SqlSteps) -> None:
        """Two failing roots over one tangled graph: everything below is canceled, no conflict is reported."""
        for _ in range(ROUNDS):
            one, two = shared.specs(2)
            middle, last = shared.child(needs=2), shared.child(needs=2)
            shared.insert(
                [one, two, middle, last],
                [
                    shared.edge(one, middle),
                    shared.edge(two, middle),
                    shared.edge(one, last),
                    shared.edge(middle, last),
                ],
            )
            claims = {claim.job_id: claim for claim in shared.claim()}
            completions = [shared.completion(claims[spec.job_id], shared.failure()) for spec in (one, two)]
            at_once(*[lambda c=c: shared.store.complete([c], now=shared.now) for c in completions])
            assert shared.statuses([middle.job_id, last.job_id]) == [CANCELED, CANCELED]


class TestCost:
    def test_steps_of_chains_go_together_on_postgresql(
        self, postgresql: SqlSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The ends of a hundred steps, and the release of the next ones, are three statements."""
        first, second = postgresql.specs(100), [postgresql.child() for _ in range(100)]
        edges = [postgresql.edge(one, two) for one, two in zip(first, second, strict=True)]
        postgresql.insert([*first, *second], edges)
        claims = postgresql.claim()
        completions = [postgresql.completion(claim) for claim in claims]
        sent = Statements(monkeypatch)
        answers: list[CompletionAnswer] = []
        complete = postgresql.store.complete
        assert len(sent.of(lambda: answers.extend(complete(completions, now=postgresql.now)))) == 3
        children = {edge.parent_id: edge.child_id for edge in edges}
        assert [answer.released for answer in answers] == [(children[claim.job_id],) for claim in claims]
        assert {claim.job_id for claim in postgresql.claim()} == {spec.job_id for spec in second}
        states = {edge.state for spec in first for edge in postgresql.store.edges_of(spec.job_id)}
        assert states == {EdgeState.SATISFIED}


class TestPlans:
    @pytest.mark.parametrize("analyzed", ["never", "when empty", "now"])
    def test_edges_are_found_by_their_parents(self, postgresql: SqlSteps, analyzed: str) -> None:
        """Among 2,000 edges the statements of a release read those of its parents, whatever the statistics say."""
        for table in ("scheduler_job", "scheduler_dependency"):
            postgresql.write(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        if analyzed == "when empty":
            postgresql.write("ANALYZE")
        first, second = postgresql.specs(2000), [postgresql.child() for _ in range(2000)]
        pairs = list(zip(first, second, strict=True))
        postgresql.insert([*first, *second], [postgresql.edge(one, two) for one, two in pairs])
        if analyzed == "now":
            postgresql.write("ANALYZE")
        parents = [one.job_id for one, _ in pairs[:20]]
        children = [two.job_id for _, two in pairs[:20]]
        edges = list(zip(parents, children, strict=True))
        settled = [(*edge, "SATISFIED") for edge in edges]
        released = {"parents": parents, "ids": children, "edge": edges, "now": postgresql.now}
        for sql, params in (
            (FIND_EDGES_AND_NEEDS, {"ids": parents}),
            (SETTLE_EDGES_OF, {"ids": parents, "edge": settled}),
            (RELEASE_BY_EDGES, released),
        ):
            plan = postgresql.store.database.run(
                lambda session, s=sql, p=params: session.rows(f"EXPLAIN {s}", p)
            )
            lines = [line for (line,) in plan]
            for line, condition in pairwise(lines):
                if "Scan" in line and "scheduler_" in line:
                    assert "Index Scan" in line, "\n".join(lines)
                    assert "Index Cond" in condition, "\n".join(lines)


class TestEndsInOneCall:
    def test_each_child_gets_what_its_own_parents_say(self, steps: SqlSteps) -> None:
        """One call ends parents of every sort: steps, a join that needs more, a failure, a signal, one canceled before."""
        one, two, three, four, five, six = steps.specs(6)
        step, canceled = steps.child(), steps.child()
        both, early = steps.child(needs=2), steps.child(needs=2)
        signaled = steps.child(signal=SignalWait(key="k"))
        spared, fallback = steps.child(), steps.child()
        steps.insert(
            [one, two, three, four, five, six, step, canceled, both, early, signaled, spared, fallback],
            [
                steps.edge(one, step),
                steps.edge(one, canceled, position=1),
                steps.edge(one, both),
                steps.edge(two, both),
                steps.edge(three, early),
                steps.edge(six, early),
                steps.edge(four, signaled),
                steps.edge(five, spared),
                steps.edge(five, fallback, kind=EdgeKind.FAILURE, position=1),
            ],
        )
        steps.store.cancel(canceled.job_id, reason="r", now=steps.now)
        claims = {claim.job_id: claim for claim in steps.claim()}
        ends = [steps.completion(claims[spec.job_id]) for spec in (one, two, three, four)]
        ends.append(steps.completion(claims[five.job_id], steps.failure()))
        answers = {
            end.claim.job_id: answer
            for end, answer in zip(ends, steps.store.complete(ends, now=steps.now), strict=True)
        }
        found = steps.statuses([job.job_id for job in (step, both, early, signaled, fallback)])
        assert found == [PENDING, PENDING, WAITING, WAITING, PENDING]
        assert steps.statuses([canceled.job_id, spared.job_id]) == [CANCELED, CANCELED]
        released = [job_id for answer in answers.values() for job_id in answer.released]
        assert sorted(released) == sorted([step.job_id, both.job_id, fallback.job_id])
        steps.end(claims[six.job_id])
        assert steps.status(early.job_id) is PENDING


class TestRevival:
    def test_the_whole_chain_below(self, steps: SqlSteps) -> None:
        """A failure canceled two steps; its retry brings both back, and they run in order."""
        one, two, three = steps.spec(), steps.child(), steps.child()
        steps.insert([one, two, three], [steps.edge(one, two), steps.edge(two, three)])
        end(steps, one.job_id, steps.failure())
        assert steps.statuses([two.job_id, three.job_id]) == [CANCELED, CANCELED]
        assert steps.store.retry(one.job_id, now=steps.now)
        assert steps.statuses([two.job_id, three.job_id]) == [WAITING, WAITING]
        for spec in (one, two, three):
            end(steps, spec.job_id)

    def test_a_join_needs_both_retries(self, steps: SqlSteps) -> None:
        """Two failed parents: the join comes back when the second of them is retried, in any order."""
        for order in (0, 1):
            parents = steps.specs(2)
            join = join_of(steps, parents, needs=2)
            for parent in parents:
                end(steps, parent.job_id, steps.failure())
            first, second = parents if order else parents[::-1]
            assert steps.store.retry(first.job_id, now=steps.now)
            assert steps.status(join.job_id) is CANCELED
            assert steps.store.retry(second.job_id, now=steps.now)
            assert steps.status(join.job_id) is WAITING
            for parent in parents:
                end(steps, parent.job_id)
            assert steps.status(join.job_id) is PENDING
            end(steps, join.job_id)

    def test_the_first_has_succeeded_before_the_second_is_retried(self, steps: SqlSteps) -> None:
        """What a retried parent achieved while the join was still canceled counts."""
        parents = steps.specs(2)
        join = join_of(steps, parents, needs=2)
        for parent in parents:
            end(steps, parent.job_id, steps.failure())
        assert steps.store.retry(parents[0].job_id, now=steps.now)
        end(steps, parents[0].job_id)
        assert steps.store.retry(parents[1].job_id, now=steps.now)
        assert steps.status(join.job_id) is WAITING
        end(steps, parents[1].job_id)
        assert steps.status(join.job_id) is PENDING

    def test_at_least_one_of_two(self, steps: SqlSteps) -> None:
        """Either retry makes the join possible again."""
        parents = steps.specs(2)
        join = join_of(steps, parents, needs=1)
        for parent in parents:
            end(steps, parent.job_id, steps.failure())
        assert steps.status(join.job_id) is CANCELED
        assert steps.store.retry(parents[0].job_id, now=steps.now)
        assert steps.status(join.job_id) is WAITING

    def test_what_a_person_canceled_stays_canceled(self, steps: SqlSteps) -> None:
        """A retry revives what the failure canceled, not what somebody did not want."""
        one, wanted, unwanted = steps.spec(), steps.child(), steps.child()
        steps.insert([one, wanted, unwanted], [steps.edge(one, wanted), steps.edge(one, unwanted)])
        steps.store.cancel(unwanted.job_id, reason="no", now=steps.now)
        end(steps, one.job_id, steps.failure())
        assert steps.store.retry(one.job_id, now=steps.now)
        assert steps.statuses([wanted.job_id, unwanted.job_id]) == [WAITING, CANCELED]

    def test_a_branch_that_has_run_does_not_run_again(self, steps: SqlSteps) -> None:
        """The failure branch fired; after the retry only the success branch is new."""
        one, success, failure = steps.spec(), steps.child(), steps.child()
        steps.insert(
            [one, success, failure],
            [steps.edge(one, success), steps.edge(one, failure, EdgeKind.FAILURE, position=1)],
        )
        end(steps, one.job_id, steps.failure())
        end(steps, failure.job_id)
        assert steps.store.retry(one.job_id, now=steps.now)
        end(steps, one.job_id)
        assert steps.statuses([success.job_id, failure.job_id]) == [PENDING, JobStatus.SUCCEEDED]

    def test_retries_at_once(self, shared: SqlSteps) -> None:
        """Both parents of a join retried in the same moment: it waits again, and is released once."""
        for _ in range(ROUNDS):
            parents = shared.specs(2)
            join = join_of(shared, parents, needs=2)
            for parent in parents:
                end(shared, parent.job_id, shared.failure())
            at_once(*[lambda p=p: shared.store.retry(p.job_id, now=shared.now) for p in parents])
            assert shared.status(join.job_id) is WAITING
            for parent in parents:
                end(shared, parent.job_id)
            end(shared, join.job_id)


class TestTwoConditions:
    def test_a_job_that_waits_for_its_parent_and_for_a_signal(self, steps: SqlSteps) -> None:
        """It needs both, in any order."""
        for signal_first in (True, False):
            key = f"go-{signal_first}"
            (parent,) = steps.specs(1)
            child = join_of(steps, [parent], needs=1, signal=SignalWait(key=key))
            if signal_first:
                steps.store.send_signal(steps.signal(key), now=steps.now)
                assert steps.status(child.job_id) is WAITING
                end(steps, parent.job_id)
            else:
                end(steps, parent.job_id)
                assert steps.status(child.job_id) is WAITING
                steps.store.send_signal(steps.signal(key), now=steps.now)
            assert steps.status(child.job_id) is PENDING


class TestGraph:
    def test_it_reaches_the_archive(self, steps: SqlSteps) -> None:
        """A chain whose first steps are archived is still shown whole."""
        one = steps.spec()
        two = steps.child(root_id=one.job_id)
        steps.insert([one, two], [steps.edge(one, two)])
        end(steps, one.job_id)
        end(steps, two.job_id)
        steps.advance(days=1)
        steps.store.archive(before=steps.now, limit=1, now=steps.now)
        graph = steps.store.graph(one.job_id)
        assert {node.job_id for node in graph.nodes} == {one.job_id, two.job_id}
        assert [(edge.parent_id, edge.child_id) for edge in graph.edges] == [(one.job_id, two.job_id)]
