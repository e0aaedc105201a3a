"""
A small evaluator for PromQL, over pages that were scraped: whether an alert rule would fire.

It knows what the rules of ``ops/prometheus/alerts.yml`` use, and refuses the rest. Parsing, and checking types and functions, is
promql_parser's work, which is Prometheus' own grammar.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import promql_parser as promql
from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


class Page(NamedTuple):
    """What one scrape has found, and when, in seconds."""

    at: float
    samples: tuple[tuple[str, Labels, float], ...]

    @classmethod
    def of(cls, text: str, at: float, instance: str = "worker") -> Page:
        """A page in Prometheus' text format; `instance` is the label that Prometheus adds."""
        found = [
            (sample.name, frozenset({**sample.labels, "instance": instance}.items()), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
        return cls(at, tuple(found))


Vector = dict[Labels, float]

_COMPARING: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_CALCULATING: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": lambda one, other: one / other if other else float("nan"),
}  # fmt: skip
_TOGETHER: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min, "count": len}


def fires(expression: str, pages: Sequence[Page]) -> Vector:
    """What the rule's expression has at the time of the last page; empty: the alert does not fire."""
    return _vector(promql.parse(expression), list(pages))


def _vector(node: Any, pages: list[Page]) -> Vector:
    match node:
        case promql.ParenExpr():
            return _vector(node.expr, pages)
        case promql.VectorSelector():
            return _selected(node, pages[-1:])
        case promql.AggregateExpr():
            return _aggregated(node, _vector(node.expr, pages))
        case promql.BinaryExpr():
            return _combined(node, pages)
        case promql.Call():
            return _called(node, pages)
    raise NotImplementedError(f"{type(node).__name__} in {node}")


def _selected(node: Any, pages: Iterable[Page]) -> Vector:
    return {labels: values[-1] for labels, values in _series(node, pages).items()}


def _series(node: Any, pages: Iterable[Page]) -> dict[Labels, list[float]]:
    assert (node.offset, node.at, node.matchers.or_matchers) == (None, None, []), str(node)
    found: dict[Labels, list[float]] = {}
    for page in pages:
        for name, labels, value in page.samples:
            if name == node.name and _matches(node.matchers.matchers, dict(labels)):
                found.setdefault(labels, []).append(value)
    return found


def _matches(matchers: Iterable[Any], labels: Mapping[str, str]) -> bool:
    return all(_is_met(one, labels.get(one.name, "")) for one in matchers)


def _is_met(matcher: Any, value: str) -> bool:
    operation = promql.MatchOp
    if matcher.op == operation.Equal:
        return bool(value == matcher.value)
    if matcher.op == operation.NotEqual:
        return bool(value != matcher.value)
    fits = re.fullmatch(matcher.value, value) is not None
    return fits if matcher.op == operation.Re else not fits


def _aggregated(node: Any, vector: Vector) -> Vector:
    groups: dict[Labels, list[float]] = {}
    by = () if node.modifier is None else tuple(node.modifier.labels)
    assert node.modifier is None or node.modifier.type == promql.AggModifierType.By, str(node)
    for labels, value in vector.items():
        key = frozenset((name, value) for name, value in labels if name in by)
        groups.setdefault(key, []).append(value)
    return {labels: float(_TOGETHER[str(node.op)](values)) for labels, values in groups.items()}


def _combined(node: Any, pages: list[Page]) -> Vector:
    name = str(node.op)
    how = node.modifier
    assert how is None or (how.matching, how.return_bool) == (None, False), f"{node}: on(), ignoring(), bool"
    left = _vector(node.lhs, pages)
    if isinstance(node.rhs, promql.NumberLiteral):
        return _with_number(name, left, node.rhs.val)
    right = _vector(node.rhs, pages)
    if name == "and":
        return {labels: value for labels, value in left.items() if labels in right}
    if name == "or":
        return {**right, **left}
    if name == "unless":
        return {labels: value for labels, value in left.items() if labels not in right}
    both = {labels: (value, right[labels]) for labels, value in left.items() if labels in right}
    if name in _COMPARING:
        return {labels: one for labels, (one, other) in both.items() if _COMPARING[name](one, other)}
    return {labels: _CALCULATING[name](one, other) for labels, (one, other) in both.items()}


def _with_number(name: str, left: Vector, number: float) -> Vector:
    if name in _COMPARING:
        return {labels: value for labels, value in left.items() if _COMPARING[name](value, number)}
    return {labels: _CALCULATING[name](value, number) for labels, value in left.items()}


def _called(node: Any, pages: list[Page]) -> Vector:
    (argument,) = node.args
    if node.func.name == "absent":
        return {} if _vector(argument, pages) else {frozenset(): 1.0}
    assert isinstance(argument, promql.MatrixSelector), str(node)
    within = [page for page in pages if page.at > pages[-1].at - _seconds(argument.range)]
    series = _series(argument.vector_selector, within)
    change = {"increase": _increase, "delta": lambda values: values[-1] - values[0]}[node.func.name]
    # As in Prometheus, one value has no change. Nothing is extrapolated here.
    return {labels: change(values) for labels, values in series.items() if len(values) > 1}


def _increase(values: Sequence[float]) -> float:
    """How much a counter has grown; it may have begun anew."""
    grown = 0.0
    for before, after in pairwise(values):
        grown += after - before if after >= before else after
    return grown


def _seconds(length: timedelta) -> float:
    return length.total_seconds()


def selectors(expression: str) -> list[tuple[str, set[str], set[str]]]:
    """Every metric that *expression* names, with the labels it is selected by and those that aggregations use."""
    found: list[tuple[str, set[str], set[str]]] = []

    def walk(node: Any, grouped: frozenset[str]) -> None:
        match node:
            case promql.VectorSelector():
                found.append((node.name, {one.name for one in node.matchers.matchers}, set(grouped)))
            case promql.MatrixSelector():
                walk(node.vector_selector, grouped)
            case promql.AggregateExpr():
                more = () if node.modifier is None else node.modifier.labels
                walk(node.expr, grouped | frozenset(more))
            case promql.BinaryExpr():
                walk(node.lhs, grouped)
                walk(node.rhs, grouped)
            case promql.Call():
                for argument in node.args:
                    walk(argument, grouped)
            case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                walk(node.expr, grouped)

    walk(promql.parse(expression), frozenset())
    return found
