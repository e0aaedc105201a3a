"""The targets of the simulation: what its jobs do, and the predicates of its graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ratchet.api.context import JobContext
from ratchet.model.payload import ParameterTypes
from ratchet.model.results import BatchContext, JobResult
from ratchet.model.status import Lane
from ratchet.spi.invocation_resolver import Invocation

if TYPE_CHECKING:
    from tests.simulation.graphs import GraphWorld
    from tests.simulation.world import World


class Targets:
    """Resolves the simulation's targets."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[str, Callable[..., Any]] = {
            "sim:succeed": lambda: "done",
            "sim:fail": _fail,
            "sim:flaky": world.flaky,
            "sim:later": world.later,
            "sim:progress": _progress,
            "sim:record": lambda context: None,
        }

    def resolve(self, target: str) -> Invocation:
        function = self._known[target]
        return Invocation(
            target=target,
            function=function,
            is_coroutine=False,
            lane=Lane.THREAD,
            parameters=ParameterTypes(),
        )

    def describe(self, *_: Any) -> Any:
        raise AssertionError("the simulation submits specs")


def _fail() -> None:
    raise ValueError("always")


def _progress() -> str:
    context = JobContext.current()
    context.state["step"] = context.state.get("step", 0) + 1
    context.save()
    context.progress(0.5, "half")
    return "progressed"


class GraphTargets(Targets):
    """The targets and predicates of graphs."""

    def __init__(self, world: GraphWorld) -> None:
        super().__init__(world)
        self._known |= {
            "sim:step": world.step,
            "sim:is_odd": lambda result: result % 2 == 1,
            "sim:is_well": _is_well,
            "sim:is_bad": lambda ended: not _is_well(ended),
            "sim:raises": _raises,
            "sim:is_odd_batch": _is_odd_batch,
        }


def _is_well(ended: JobResult) -> bool:
    return ended.succeeded


def _raises(ended: JobResult) -> bool:
    raise KeyError("no such answer")


def _is_odd_batch(context: BatchContext) -> bool:
    return context.total_items % 2 == 1
