"""The files for operators: rules and a board that name only what exists, and say what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ratchet.engine.meters import OUTCOMES
from ratchet.model.metrics import METRICS, MetricKind
from ratchet.model.problems import CODES
from tests.support.promql import Page, fires, selectors

ROOT = Path(__file__).parents[2]
RULES = ROOT / "ops" / "prometheus" / "alerts.yml"
BOARD = ROOT / "ops" / "grafana" / "ratchet.json"
#: Labels that Prometheus adds, and that a worker adds to the metrics of its processes.
ADDED = {"instance", "job", "process"}
DURATION = re.compile(r"(\d+(ms|[smhdwy]))+")
CATALOG = {metric.name: metric for metric in METRICS}


def rules() -> list[dict[str, Any]]:
    """Every rule of every group."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Every panel that shows something."""
    return [panel for panel in json.loads(BOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> list[tuple[str, str]]:
    """Every expression, with the name of what it is for; variables of Grafana have a value."""
    found = [(rule["alert"], rule["expr"]) for rule in rules()]
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "5m").replace("$queue", ".*")
            found.append((panel["title"], text))
    return found


@pytest.mark.parametrize(("name", "expression"), expressions())
def test_an_expression_names_what_exists(name: str, expression: str) -> None:
    """It is PromQL; every metric is in the catalog, is of a kind that this makes sense for, and has the labels that are used."""
    for metric, matched, grouped in selectors(expression):
        base = metric.removesuffix("_bucket")
        assert base in CATALOG, f"{name}: there is no metric {metric}"
        described = CATALOG[base]
        assert (metric != base) == (described.kind is MetricKind.HISTOGRAM), f"{name}: {metric}"
        labels = {*described.labels, *ADDED, *(["le"] if metric != base else [])}
        assert matched | grouped <= labels, f"{name}: {metric} has the labels {sorted(labels)}"
        is_changing = re.search(rf"(rate|increase)\({metric}\b", expression) is not None
        assert is_changing == (described.kind is not MetricKind.GAUGE), (
            f"{name}: rate is for counters: {metric}"
        )


@pytest.mark.parametrize(("name", "expression"), expressions())
def test_values_of_labels_exist(name: str, expression: str) -> None:
    """A misspelled code or outcome would never be found, and the alert never fire."""
    known = {"code": set(CODES), "outcome": set(OUTCOMES), "status": {"due", "running"}, "state": {"active"}}
    for label, values in re.findall(r'(code|outcome|status|state)=~?"([^"]+)"', expression):
        assert set(values.split("|")) <= known[label], f"{name}: {label}"


def test_the_groups_are_what_prometheus_takes() -> None:
    """Only known fields, with values of the right form; no two rules or groups have the same name."""
    document = yaml.safe_load(RULES.read_text())
    assert set(document) == {"groups"}
    assert all(set(group) == {"name", "rules"} for group in document["groups"])
    for names in ([group["name"] for group in document["groups"]], [rule["alert"] for rule in rules()]):
        assert len(names) == len(set(names))
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert re.fullmatch(r"Ratchet[A-Za-z]+", rule["alert"])
        assert "for" not in rule or DURATION.fullmatch(rule["for"]), rule["alert"]
        # A rule without `for` looks back over a time by itself.
        assert "for" in rule or re.search(r"\[\d+m\]", rule["expr"]), rule["alert"]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_says_what_to_do(rule: dict[str, Any]) -> None:
    """It has a severity, a summary whose templates name labels that the expression keeps, and a section of the docs."""
    assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
    assert set(rule["annotations"]) == {"summary", "runbook"}
    summary = rule["annotations"]["summary"]
    assert summary[-1] == "."
    without_templates = re.sub(r"\{\{ \$(labels\.\w+|value)( \| humanize\w+)? \}\}", "", summary)
    assert not re.search(r"[{}$]", without_templates), summary
    for label in re.findall(r"\$labels\.(\w+)", summary):
        kept = "by (" in rule["expr"] or label == "instance"
        assert kept, f"{label} is aggregated away"
        assert label == "instance" or f"by ({label})" in rule["expr"]
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == rule["alert"].lower()
    assert anchor in anchors(ROOT / page), f"{page} has no section {anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_problem_has_a_rule() -> None:
    """Each code of `ratchet health` is looked at by a rule of its own; the one with a limit of yours has a metric instead."""
    named = set(re.findall(r'code="(\w+)"', RULES.read_text()))
    instead = {
        "dead_letters": "ratchet_dead_letters",
        "open_breaker": "ratchet_breaker_open",
        "parked": "ratchet_parked_jobs",
        "late_schedule": "ratchet_schedule_lateness_seconds",
    }
    assert named | instead.keys() == set(CODES)
    assert all(metric in RULES.read_text() for metric in instead.values())


class TestBoard:
    def test_it_is_what_grafana_takes(self) -> None:
        """Unique ids and titles, a data source that can be chosen, and panels that do not cover each other."""
        board = json.loads(BOARD.read_text())
        assert (board["title"], board["uid"]) == ("Ratchet", "ratchet")
        assert [one["name"] for one in board["templating"]["list"]] == ["datasource", "queue"]
        ids = [panel["id"] for panel in board["panels"]]
        titles = [panel["title"] for panel in board["panels"]]
        assert len(ids) == len(set(ids))
        assert len(titles) == len(set(titles))
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
            assert not cells & taken, panel["title"]
            assert max(x for x, _ in cells) < 24
            taken |= cells

    def test_every_panel_can_be_drawn(self) -> None:
        """It has queries, each with a letter of its own, the chosen data source, and a legend of labels that are kept."""
        for panel in panels():
            assert panel["type"] in ("timeseries", "stat")
            letters = [target["refId"] for target in panel["targets"]]
            assert letters
            assert len(letters) == len(set(letters))
            for target in panel["targets"]:
                assert (
                    target["datasource"]
                    == panel["datasource"]
                    == {"type": "prometheus", "uid": "${datasource}"}
                )
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    assert re.search(rf"by \([^)]*\b{label}\b[^)]*\)", target["expr"]), panel["title"]

    def test_every_metric_is_shown(self) -> None:
        """What is measured can be seen."""
        shown = {
            metric.removesuffix("_bucket") for _, text in expressions() for metric, _, _ in selectors(text)
        }
        assert shown == set(CATALOG)


class TestEvaluator:
    """The evaluator of `tests/support/promql.py`, which other tests believe."""

    PAGES = (
        Page.of('a{x="1"} 1\na{x="2"} 2\nb{x="1"} 4\nc_total 10\n', 0.0),
        Page.of('a{x="1"} 3\na{x="2"} 2\nb{x="1"} 6\nc_total 14\n', 60.0),
        Page.of('a{x="1"} 3\na{x="2"} 5\nb{x="1"} 6\nc_total 1\n', 400.0),
    )

    @pytest.mark.parametrize(
        ("expression", "values"),
        [
            ("a", [3, 5]), ("sum(a)", [8]), ("max by (x) (a) > 3", [5]), ('a{x=~"1|3"}', [3]), ('a{x!="1"} == 5', [5]),
            ("a == 4", []), ("absent(a)", []), ("absent(nothing)", [1]), ("a / b", [0.5]), ("a >= b", []), ("b >= a", [6]),
            ("a and b", [3]), ("a unless b", [5]), ("increase(c_total[10m])", [5]), ("increase(c_total[6m])", [1]), ("increase(c_total[1m])", []),
            ("delta(a[10m])", [2, 3]), ("nothing > 0", []),
        ],
    )  # fmt: skip
    def test_what_it_says(self, expression: str, values: list[float]) -> None:
        """As Prometheus would, without extrapolation."""
        assert sorted(fires(expression, self.PAGES).values()) == values

    def test_what_it_does_not_know_it_refuses(self) -> None:
        """No rule may seem to be silent because of that."""
        for expression in (
            "a offset 5m",
            "-a",
            "quantile_over_time(0.5, a[5m])",
            "a == on (x) b",
            "sum without (x) (a)",
        ):
            with pytest.raises((AssertionError, NotImplementedError, KeyError, ValueError)):
                fires(expression, self.PAGES)
