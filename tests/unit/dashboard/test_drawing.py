"""What is drawn: states, runs, and graphs that stay readable when they are large."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from ratchet import JobGraph, JobStatus, JobType
from ratchet.dashboard.drawing.bars import hour_bars, run_bars, share_bar
from ratchet.dashboard.drawing.curves import CHARTS, chart
from ratchet.dashboard.drawing.graphs import CROWDED, READABLE, Box, drawn, folded
from ratchet.dashboard.drawing.states import MOVES, state_diagram
from ratchet.dashboard.text import ago, count, document, span
from ratchet.model.composition import Edge, EdgeKind, Graph, GraphNode
from ratchet.model.flow_history import FlowPoint
from ratchet.model.job import Execution
from ratchet.model.status import TRANSITIONS

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def graph_of(
    size: int, edges: Sequence[tuple[int, int]], failed: Sequence[int] = (), target: str = "t"
) -> JobGraph:
    """Jobs 0 to *size*, and who waits for whom."""
    nodes = tuple(
        GraphNode(
            job_id=UUID(int=one + 1),
            target=target,
            status=JobStatus.FAILED if one in failed else JobStatus.WAITING,
            type=JobType.CHAIN_STEP,
        )
        for one in range(size)
    )
    return JobGraph(
        Graph(
            nodes=nodes,
            edges=tuple(Edge(parent_id=UUID(int=a + 1), child_id=UUID(int=b + 1)) for a, b in edges),
        )
    )


def draw(boxes: list[Box], focus: UUID | None = None) -> ElementTree.Element:
    """The drawing, read as XML: it has to be well formed."""
    text = drawn(boxes, focus=focus, link=lambda one: f"/jobs/{one}", unfold=lambda one: f"?unfold={one}")
    return ElementTree.fromstring(str(text))


class TestStates:
    @pytest.mark.parametrize("status", JobStatus)
    def test_each_state(self, status: JobStatus) -> None:
        """All are drawn, and the one it is in stands out."""
        tree = ElementTree.fromstring(str(state_diagram(status)))
        boxes = [one for one in tree.iter("g") if "state" in one.get("class", "").split()]
        assert len(boxes) == len(JobStatus)
        assert [one.get("class") for one in boxes if "current" in one.get("class", "")] == [
            f"state s-{status.value} current"
        ]

    def test_only_legal_moves(self) -> None:
        """What is drawn is in the table of the state machine."""
        assert set(MOVES) <= {(move.source, move.target) for move in TRANSITIONS}


class TestGraphs:
    def test_a_small_one_is_drawn_as_it_is(self) -> None:
        """A box for each job, and it leads to the job."""
        boxes = folded(graph_of(4, [(0, 1), (1, 2), (1, 3)]), focus=UUID(int=2))
        tree = draw(boxes, UUID(int=2))
        assert sorted(one.get("href", "") for one in tree.iter("a")) == [
            f"/jobs/{UUID(int=n)}" for n in range(1, 5)
        ]
        assert [box.layer for box in boxes] == [0, 1, 2, 2]
        assert len([one for one in tree.iter("path") if one.get("class") == "edge"]) == 3
        assert [one.get("href") for one in tree.iter("a") if one.get("aria-current")] == [
            f"/jobs/{UUID(int=2)}"
        ]

    def test_parts_of_a_join_are_folded(self) -> None:
        """Five hundred parts are one box; what failed among them is another."""
        graph = graph_of(501, [(one, 500) for one in range(500)], failed=[7, 8, 9])
        boxes = folded(graph, focus=UUID(int=501))
        assert sorted(len(box.nodes) for box in boxes) == [1, 3, 497]
        assert sum(len(box.nodes) for box in boxes) == 501
        again = folded(graph, focus=UUID(int=501), unfolded=[UUID(int=8)])
        assert sorted(len(box.nodes) for box in again) == [1, 1, 1, 1, 497]

    def test_the_steps_of_a_chain_are_folded(self) -> None:
        """Five hundred steps: the one that is looked at, the one that failed, and what lies between."""
        graph = graph_of(500, [(one, one + 1) for one in range(499)], failed=[100])
        boxes = folded(graph, focus=UUID(int=301))
        assert len(boxes) < 10
        assert [UUID(int=301)] in [[node.job_id for node in box.nodes] for box in boxes]
        assert sum(len(box.nodes) for box in boxes) == 500
        first = next(box for box in boxes if len(box.nodes) > 50)
        again = folded(graph, focus=None, unfolded=[first.first])
        assert len(again) >= len(first.nodes)

    def test_whatever_it_is_like(self) -> None:
        """A tangle of five hundred stays within bounds, and no job is lost."""
        edges = [(one, min(one + step, 499)) for one in range(499) for step in (1, 7, 31) if one < 499]
        graph = graph_of(500, sorted(set(edges)), failed=range(0, 500, 13))
        boxes = folded(graph, focus=UUID(int=5))
        assert sorted(node.job_id for box in boxes for node in box.nodes) == [
            UUID(int=n) for n in range(1, 501)
        ]
        assert len(boxes) <= 500
        draw(boxes)
        wide = graph_of(500, [(0, one) for one in range(1, 500)], failed=range(0, 500, 3))
        assert len(folded(wide, focus=None)) <= CROWDED
        assert READABLE < CROWDED

    def test_hostile_names(self) -> None:
        """Text in the drawing too."""
        boxes = folded(graph_of(2, [(0, 1)], target='"><script>alert(1)</script>'), focus=None)
        text = drawn(boxes, focus=None, link=str, unfold=str)
        assert "<script" not in text
        assert isinstance(text, Markup)

    def test_edges_say_what_they_wait_for(self) -> None:
        """On failure, or a condition."""
        edge = Edge(parent_id=UUID(int=1), child_id=UUID(int=2), kind=EdgeKind.FAILURE)
        graph = graph_of(2, [])
        boxes = folded(JobGraph(Graph(nodes=graph.nodes, edges=(edge,))), focus=None)
        assert "on failure" in [one.text for one in draw(boxes).iter("text")]


class TestBars:
    def test_runs_on_one_scale(self) -> None:
        """Each run has a bar, in the order of time, within the scale; one that is under way too."""
        runs = [
            Execution(
                job_id=UUID(int=1),
                claim_id=UUID(int=n),
                attempt=n,
                node_id="n",
                started_at=NOW + timedelta(minutes=n),
                finished_at=NOW + timedelta(minutes=n, seconds=5),
                duration=timedelta(seconds=5),
                queue_wait=timedelta(seconds=10),
                status="FAILED",
                error=None,
                traceback=None,
                counted=True,
            )
            for n in (1, 2, 3)
        ]
        now = NOW + timedelta(minutes=9)
        bars = run_bars(runs, NOW + timedelta(minutes=8), now)
        assert len(bars) == 4
        starts = [float(re.findall(r'x="([\d.]+)"', str(bar))[1]) for bar in bars]
        assert starts == sorted(starts)
        for bar in bars:
            for rect in ElementTree.fromstring(str(bar)).iter("rect"):
                assert 0 <= float(rect.get("x", "")) + float(rect.get("width", "")) <= 1000.1
        assert run_bars([], None, now) == []

    def test_numbers_for_those_who_do_not_see(self) -> None:
        """A drawing says what it shows."""
        assert 'aria-label="3 failures in the last 2 hours, 2 in this one"' in hour_bars([1, 2])
        assert "4 succeeded, 1 failed of 10" in share_bar([("SUCCEEDED", 4), ("FAILED", 1)], 10)
        assert "nothing yet" in share_bar([("SUCCEEDED", 0)], 0)


class TestCurves:
    def test_a_line_for_each_curve(self) -> None:
        """Within the drawing, the greatest value at its top; where nothing is known there is a gap."""
        points = [
            FlowPoint(
                at=NOW + timedelta(minutes=n), span=timedelta(minutes=1), succeeded=n, failed=1, depth=d
            )
            for n, d in enumerate([None, 3, 4, None, 5])
        ]
        runs, depth = (ElementTree.fromstring(str(chart(one, points))) for one in CHARTS[:2])
        lines = [one.get("d", "") for one in runs.iter("path") if "curve" in one.get("class", "")]
        assert len(lines) == 3
        numbers = [float(one) for line in lines for one in re.findall(r"[ML][\d.]+ ([\d.]+)", line)]
        assert min(numbers) == 6.0
        assert max(numbers) <= 94.0
        gaps = [one.get("d", "") for one in depth.iter("path") if "curve" in one.get("class", "")]
        assert gaps[0].count("M") == 2
        assert "at most 4" in (runs.get("aria-label") or "")

    def test_nothing_is_known(self) -> None:
        """A store without rates has empty charts, which say so."""
        for one in CHARTS:
            assert "nothing in this time" in chart(one, [])
            assert "curve" not in chart(one, [])


def test_durations_and_counts() -> None:
    """In two units at most; counts end with a plus where counting ended."""
    lengths = [None, 0, 0.0123, 1.239, 42.4, 200, 7200, 7260, 93784, 10 * 86400]
    assert [span(one) for one in lengths] == [
        "\u2013",
        "<1 ms",
        "12 ms",
        "1.24 s",
        "42 s",
        "3 min 20 s",
        "2 h",
        "2 h 1 min",
        "1 d 2 h",
        "10 d",
    ]
    assert (count(10_000, 10_000), count(10_001, 10_000)) == ("10,000", "10,000+")
    assert [ago(NOW - timedelta(seconds=one), NOW) for one in (0, 59, 3600, -120)] == [
        "now",
        "59 s ago",
        "1 h ago",
        "in 2 min",
    ]
    assert document({"a": timedelta(seconds=2), "b": (1, {"x"})}) == {"a": 2.0, "b": [1, ["x"]]}
