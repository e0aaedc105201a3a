"""
What a scheduler's node is made of, what is stored before it starts, and who is told of its steps.

`Core` asks for it when this process becomes a node; nothing here is part of a plain submission.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from ratchet.model.audit import AuditSource
from ratchet.model.breaker import Breaker, BreakerState
from ratchet.model.events import BreakerClosed, BreakerOpened, JobDeadLettered
from ratchet.model.process import process_name
from ratchet.model.status import Priority
from ratchet.spi.store.audit import by_node

if TYPE_CHECKING:
    from ratchet.engine.assembly import NodeParts
    from ratchet.scheduler.core import Core

logger = logging.getLogger("ratchet")

#: Who removes schedules that are no longer declared.
UNDECLARED_LEASE = "undeclared-schedules"
UNDECLARED_TTL = timedelta(seconds=30)


def node_parts(
    core: Core, *, alert: Callable[[JobDeadLettered], None] | None, notice: Callable[[Sequence[UUID]], None]
) -> NodeParts:
    """The parts for the engine: those that people gave, and what *core* does for its node."""
    from ratchet.engine.assembly import NodeParts

    def breaker_moved(service: str, before: Breaker, after: Breaker) -> None:
        """Tell listeners; once a breaker has closed, wake all nodes so that its jobs do not wait for the next poll."""
        if after.state is BreakerState.OPEN:
            core.publish(BreakerOpened(service=service, at=core.clock.now(), until=after.until))
        elif after.state is BreakerState.CLOSED:
            core.publish(BreakerClosed(service=service, at=core.clock.now()))
            core.submitted((), due=True, priority=Priority.NORMAL)

    parts = core.parts
    return NodeParts(
        store=core.store,
        options=core.options,
        clock=core.clock,
        ids=core.ids,
        bus=core.bus,
        invocations=parts.targets,
        instances=parts.instances,
        sanitizer=parts.sanitizer,
        retry_policy=parts.retry_policy,
        resilience=parts.resilience(core.store, core.clock, breaker_moved),
        executor=parts.executor,
        polling=parts.polling,
        own_polling=parts.own_polling,
        cluster=core.cluster,
        middleware=core.middleware,
        allow_type=core.allow_type,
        version=_version(),
        notice=notice,
        alert=alert,
        supervised=core.supervised,
        started_runs=core.started_runs,
        meters=tuple(core.meters),
        tracer=core.tracer,
        on_stop_request=lambda: core.on_stop_request(),
        codec=parts.codec,
    )


def store_recurrences(core: Core) -> None:
    """Store the declared schedules; if an option says so, remove those that are no longer declared."""
    declared = set()
    if core.recurrences:  # from the first time that somebody acts for another, each submission asks who acts
        with core.acting_as(None, AuditSource.NODE):
            declared = {recurrence.store(core, asked=False).name for recurrence in core.recurrences}
    if not core.options.remove_undeclared:
        return
    undeclared = [
        record.spec.name
        for record in core.store.schedules()
        if record.spec.declared and record.spec.name not in declared
    ]
    if undeclared:
        _remove_undeclared(core, undeclared)


def _remove_undeclared(core: Core, names: Sequence[str]) -> None:
    """Remove schedules while this process holds the lease for it; another that holds it does the same."""
    token = core.ids()

    def holds_lease() -> bool:
        return core.store.acquire_lock(
            UNDECLARED_LEASE, holder=process_name(), token=token, ttl=UNDECLARED_TTL, now=core.now()
        )

    try:
        for name in names:
            if not holds_lease():  # taken for the first one, renewed for the others
                logger.info("another process removes the schedules that are not in the code any more")
                return
            logger.info("schedule %s is not in the code any more and is removed", name)
            with by_node("remove", f"schedule:{name}", reason="not declared any more"):
                core.store.remove_schedule(name)
    finally:
        core.store.release_lock(UNDECLARED_LEASE, token=token)


def call_hooks(name: str, hooks: Sequence[object]) -> None:
    """Tell each lifecycle hook of a step; what one raises is logged, and the others still hear of it."""
    for hook in hooks:
        try:
            getattr(hook, name, nothing)()
        except BaseException:
            logger.exception("the lifecycle hook %s raised in %s", type(hook).__qualname__, name)


def nothing() -> None:
    """What a lifecycle hook does in a step that it does not have."""


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ratchet-jobs")
    except PackageNotFoundError:  # a source tree on the path
        return "0"
