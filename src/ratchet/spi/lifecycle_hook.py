from __future__ import annotations

from typing import Protocol


class LifecycleHook(Protocol):
    """
    Runs around a node's start and stop; derive from it and override what you need.

    Hooks run in the order they were given, and in the reverse order when stopping. What a
    ``before_start`` raises prevents the start; what the others raise is logged and changes nothing.
    If a start fails, for whatever reason, ``after_stop`` is called for each hook whose ``before_start`` has
    returned, so that the two are always paired.
    """

    def before_start(self) -> None:
        """Before the node registers and claims: the place for migrations."""
        return

    def after_start(self) -> None:
        """The node is registered and its poller runs."""
        return

    def before_stop(self) -> None:
        """The node still works; nothing has been handed back yet."""
        return

    def after_stop(self) -> None:
        """The node has left the cluster, or its start has failed; its connections are still open."""
        return
