"""The turns of suspects: when a node stops its other work to run jobs that were running in two crashes, each alone."""

from __future__ import annotations

#: A busy node leaves a suspect to idle ones for so many seconds.
LEFT_TO_OTHERS = 1.0
#: So many seconds a turn of suspects may take, the wait for what runs included. Then the other work has its turn.
LONGEST_TURN = 60.0


class SuspectTurns:
    """
    Turns of suspects and turns of all other work.

    While a turn of suspects is on, the node starts nothing else. An idle node begins one at once, a busy one when no
    other node has taken the suspect. A turn that has become too long ends, and the other work has as much time before
    the next. A turn in which what ran did not end, so that no suspect could start, makes the next one twice as long:
    however long the other jobs take, in the end a suspect runs; and if one runs for ever, the node still works for half of
    the time.
    """

    def __init__(self) -> None:
        #: True while nothing but suspects may start.
        self.is_on = False
        #: Since when a suspect has been due; None: there is none.
        self.due_since: float | None = None
        self._begun: float | None = None
        self._has_run = False
        self._longest = LONGEST_TURN
        self._others_until = float("-inf")

    def may_begin(self, at: float, *, idle: bool) -> bool:
        """A suspect is due at *at* (monotonic): True if this node should run it now."""
        if self.due_since is None:
            self.due_since = at
        return idle or at >= max(self._others_until, self.due_since + LEFT_TO_OTHERS)

    def begin(self, at: float) -> None:
        """From now on only suspects start; a turn that is on goes on."""
        if self._begun is None:
            self._begun, self._has_run, self.is_on = at, False, True

    def ran(self) -> None:
        """A suspect was claimed, with nothing beside it."""
        self._has_run = True
        self._longest = LONGEST_TURN

    def is_too_long(self, at: float) -> bool:
        """True if the other work must have its turn."""
        return self._begun is not None and at - self._begun >= self._longest

    def end(self, at: float) -> None:
        """The other work goes on."""
        if self._begun is not None and self.is_too_long(at):
            self._others_until = at + (at - self._begun)
            if not self._has_run:
                self._longest *= 2
        self._begun = self.due_since = None
        self.is_on = False
