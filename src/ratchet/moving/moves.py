"""
Moves everything in a store to another, empty one.

Each step is written down before the next one begins, on the side that it is about, so that the same call goes on after a crash at
any point: the target is fenced off, then the source's claims; what runs there ends; the source takes no writes; rows are
copied and compared; the source is given up for good; the target is opened. At no time may both be claimed from.

A call that goes on takes the move over: it writes itself down as the holder on both sides, the source first, and whatever an earlier one
still wants to write is refused. So two calls at once cannot put rows into a target that is open.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from msgspec.structs import replace

from ratchet.model.audit import AuditEntry, AuditOutcome, AuditSource
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.identifiers import new_id
from ratchet.model.moves import (
    Fence,
    MoveOvertaken,
    MoveRecord,
    MoveRefused,
    MoveRole,
    MoveState,
    RowKind,
    Tally,
    same_move,
)
from ratchet.model.options import Options
from ratchet.moving.copying import copy_rows, filled_with, require_equal, tallies_of, tally_of
from ratchet.moving.draining import MOST, Drain
from ratchet.moving.reports import Clockwork, MoveReport, OnProgress, Stage, expected_rows, unheard
from ratchet.moving.stores import Side, exists, opened

#: How long runs may take to end before the move asks what to do.
WAIT = timedelta(minutes=5)


def move(
    source: str,
    target: str,
    *,
    options: Options | None = None,
    wait: Duration = WAIT,
    hand_back: bool = False,
    dry_run: bool = False,
    principal: str | None = None,
    on_progress: OnProgress = unheard,
) -> MoveReport:
    """
    Move every job of the store *source*, with all that belongs to it, to the store *target*; the same call goes on after a crash.

    Nodes of the source claim nothing from the first moment on. What they run may end within *wait*; then `MoveRefused`, or with
    *hand_back* the jobs are taken from them. `MoveRefused` also if the target is neither empty nor the target of this very move, or if
    both sides differ at the end. With *dry_run* nothing is written: the rows of the source are counted.
    """
    options = options if options is not None else Options()
    patience = to_timedelta(wait, "wait")
    if dry_run:
        return _dry_run(source, target, options, on_progress)
    with opened(source, options) as there, opened(target, options, new=True) as here:
        return _Move(there, here, on_progress).run(patience, hand_back=hand_back, principal=principal)


def give_up(source: str, *, options: Options | None = None) -> bool:
    """
    Let the nodes of *source* go on, and forget an unfinished move of its jobs; False if there was none.

    Refused once the jobs have been given up to the target. A target that was filled in part stays fenced off; drop it.
    """
    with opened(source, options if options is not None else Options()) as there:
        record = there.movable.move_record()
        if record is not None and record.role is MoveRole.SOURCE and record.state is MoveState.MOVED:
            raise MoveRefused(
                f"the jobs of {there.shown} were moved to {record.other} and may run there; taken up again here, they would run twice"
            )
        if record is not None and record.role is MoveRole.TARGET and record.state is MoveState.FILLING:
            raise MoveRefused(
                f"{there.shown} is being filled from {record.other}; only its source can be given back its jobs, with that URL after --from"
            )
        if (
            record is not None
            and record.role is MoveRole.SOURCE
            and not there.movable.save_move(None, was=record)
        ):
            raise MoveRefused("the move has just gone on; look again")
        there.movable.lift_fence()
        return record is not None and record.role is MoveRole.SOURCE


def _dry_run(source: str, target: str, options: Options, on_progress: OnProgress) -> MoveReport:
    with opened(source, options) as there:
        if exists(target, options):
            with opened(target, options) as here:
                _Move(there, here, on_progress).check()
        started = time.monotonic()
        clockwork = Clockwork(Stage.COPY, on_progress, expected_rows(there.store))
        tallies = tallies_of(there.movable, clockwork)
        alive = [node for node in there.store.nodes() if node.is_alive(there.store.database_time())]
        held = there.movable.held_claims(limit=MOST)
        return MoveReport(
            tallies=tallies,
            seconds=time.monotonic() - started,
            dry_run=True,
            running=len(held),
            nodes=len(alive),
        )


class _Move:
    """One call: from wherever the two records say it stands, to the end."""

    def __init__(self, there: Side, here: Side, on_progress: OnProgress) -> None:
        self._there = there
        self._here = here
        self._on_progress = on_progress
        self._origin = there.movable.origin()
        self._holder = str(new_id())
        self._handed_back = 0

    def run(self, wait: timedelta, *, hand_back: bool, principal: str | None) -> MoveReport:
        """Do what is left to do."""
        left, arrived = self.check()
        if left is not None and left.state is MoveState.MOVED:
            assert arrived is not None  # checked
            return self._open(arrived, principal, started=time.monotonic())
        resumed = arrived is not None and bool(arrived.reached)
        if left is None:
            arrived = self._prepare_target(arrived)
        else:
            assert arrived is not None  # checked
            left = self._take(self._there, left)
            arrived = self._take(self._here, arrived)
            close(self._here, Fence.FILLING, self._filling, arrived)
        left = self._fence_source(left, arrived, wait, hand_back=hand_back)
        started = time.monotonic()
        clockwork = Clockwork(Stage.COPY, self._on_progress, expected_rows(self._there.store))
        arrived, jobs = copy_rows(self._there.movable, self._here.movable, arrived, clockwork)
        tallies = self._compare(arrived)
        # From here on the jobs belong to the target. Only one of this call, another one and `give_up` can win.
        if not self._there.movable.save_move(replace(left, state=MoveState.MOVED), was=left):
            self._say_why()
        report = self._open(arrived, principal, started=started)
        return replace(
            report,
            tallies=tallies,
            copied=clockwork.rows,
            copied_jobs=jobs,
            handed_back=self._handed_back,
            resumed=resumed,
        )

    def _take(self, side: Side, found: MoveRecord) -> MoveRecord:
        """From now on no other call can change anything on this side."""
        mine = replace(found, holder=self._holder)
        if not side.movable.save_move(mine, was=found):
            raise MoveOvertaken
        return mine

    def _say_why(self) -> NoReturn:
        if self._there.movable.move_record() is not None:
            raise MoveOvertaken
        raise MoveRefused(
            f"the move was given up meanwhile: the jobs stay in {self._there.shown}, and {self._here.shown} stays closed; drop it"
        )

    # --- where it stands ------------------------------------------------------------------------

    def check(self) -> tuple[MoveRecord | None, MoveRecord | None]:
        """What the source and the target have written down about this move; `MoveRefused` where they are part of another one."""
        source, target = self._there.shown, self._here.shown
        if self._origin == self._here.movable.origin():
            raise MoveRefused(
                f"{source} and {target} are the same store, or one is a copy of the other's files"
            )
        left, arrived = self._there.movable.move_record(), self._here.movable.move_record()
        if left is not None and left.role is MoveRole.TARGET:
            if left.state is not MoveState.DONE:
                raise MoveRefused(f"{source} is itself being filled from {left.other}; finish that first")
            left = None
        if left is not None and left.state is MoveState.EXPORTING:
            raise MoveRefused(
                f"{source} is being exported, or an export was interrupted; run it again, or `ratchet db move --give-up`"
            )
        if arrived is not None and (arrived.role is MoveRole.SOURCE or arrived.origin != self._origin):
            if arrived.role is MoveRole.TARGET and arrived.state is MoveState.FILLING:
                raise MoveRefused(
                    f"{target} holds a part of what is being moved from {arrived.other}; take an empty database"
                )
            arrived = None  # something older; it is not empty, then
        if arrived is None:
            if left is not None:
                raise MoveRefused(
                    f"the jobs of {source} {'were' if left.state is MoveState.MOVED else 'are being'} moved to {left.other}, not to {target}"
                )
            require_unused(self._here, "a move")
        elif left is None or left.move_id != arrived.move_id:
            if arrived.reached or arrived.finished:
                raise MoveRefused(
                    f"{target} holds a part of a move from {source} that was given up; jobs have changed since: take an empty database"
                )
            if left is not None:
                raise MoveRefused(f"the jobs of {source} are being moved to {left.other}, not to {target}")
        return left, arrived

    @property
    def _filling(self) -> str:
        return f"nothing may be submitted or run here yet: jobs are still arriving from {self._there.shown}"

    @property
    def _leaving(self) -> str:
        return f"the jobs of this store are being moved to {self._here.shown}, or were"

    # --- steps ----------------------------------------------------------------------------------

    def _prepare_target(self, found: MoveRecord | None) -> MoveRecord:
        """Close the target, and look into it once more behind its fence; its record. *found* is that of a call that came no further."""
        here = self._here.movable
        before = here.move_record()  # of an older move, if it is none of *found*
        if found is not None and not same_move(before, found):
            raise MoveOvertaken
        if found is None and before is not None and before.state not in (MoveState.DONE, MoveState.MOVED):
            raise MoveRefused(
                f"{self._here.shown} is a side of a move with {before.other}; take an empty database"
            )
        record = MoveRecord(
            move_id=str(new_id()) if found is None else found.move_id,
            role=MoveRole.TARGET,
            state=MoveState.FILLING,
            other=self._there.shown,
            origin=self._origin,
            begun_at=datetime.now(UTC),
            holder=self._holder,
        )
        if not here.save_move(record, was=before):
            raise MoveOvertaken
        close(self._here, Fence.FILLING, self._filling, record)
        try:
            require_unused(self._here, "a move")
        except MoveRefused:
            if here.save_move(None, was=record):
                here.lift_fence()
            raise
        # who made the tables is written down here, and stays
        record = replace(record, before={RowKind.AUDIT.value: tally_of(here, RowKind.AUDIT)})
        if not here.save_move(record, was=record):
            raise MoveOvertaken
        return record

    def _fence_source(
        self, left: MoveRecord | None, arrived: MoveRecord, wait: timedelta, *, hand_back: bool
    ) -> MoveRecord:
        """Nothing is claimed, then nothing runs, then nothing is written; the record of that."""
        there = self._there.movable
        if left is None:
            before = there.move_record()  # of a move to this store, which is over
            left = replace(
                arrived, role=MoveRole.SOURCE, state=MoveState.DRAINING, other=self._here.shown, before={}
            )
            if (before is not None and before.state is not MoveState.DONE) or not there.save_move(
                left, was=before
            ):
                raise MoveOvertaken
        if left.state is MoveState.DRAINING:
            close(self._there, Fence.CLAIMS, self._leaving, left)
            self._handed_back = drain(
                self._there, self._on_progress, left, wait=wait, hand_back=hand_back, stop=True
            )
            fenced = replace(left, state=MoveState.FENCED)
            if not there.save_move(fenced, was=left):
                self._say_why()
            left = fenced
        close(self._there, Fence.WRITES, self._leaving, left)
        return left

    def _compare(self, arrived: MoveRecord) -> dict[RowKind, Tally]:
        expected = expected_rows(self._there.store)
        clockwork = Clockwork(Stage.COMPARE, self._on_progress, None if expected is None else 2 * expected)
        there = tallies_of(self._there.movable, clockwork)
        here = tallies_of(self._here.movable, clockwork)
        if not same_move(self._here.movable.move_record(), arrived):
            raise MoveOvertaken  # it may be open by now, and have rows of its own
        require_equal(there, here, arrived.before, self._here.shown)
        return there

    def _open(self, arrived: MoveRecord, principal: str | None, *, started: float) -> MoveReport:
        """Open the target, which the source has been given up for."""
        # again, for another call may have opened it, and it may have been moved on since
        if arrived.state is not MoveState.DONE and same_move(self._here.movable.move_record(), arrived):
            self._here.movable.lift_fence()
            self._here.store.append_audit(
                AuditEntry(
                    id=new_id(),
                    at=datetime.now(UTC),
                    principal=principal,
                    source=AuditSource.CLI.value,
                    verb="move",
                    object="storage",
                    reason=f"from {self._there.shown}",
                    outcome=AuditOutcome.DONE.value,
                )
            )
            self._here.movable.save_move(replace(arrived, state=MoveState.DONE), was=arrived)
        return MoveReport(tallies={}, seconds=time.monotonic() - started, resumed=True)


def require_unused(side: Side, what: str) -> None:
    """`MoveRefused` if the target of *what* has jobs of its own, or a node that works there."""
    if (kind := filled_with(side.movable)) is not None:
        raise MoveRefused(f"{side.shown} is not empty: it has rows of {kind}; {what} needs an empty database")
    now = side.store.database_time()
    alive = [node.node_id for node in side.store.nodes(counting=False) if node.is_alive(now)]
    if alive:
        raise MoveRefused(
            f"nodes work on {side.shown} already ({', '.join(alive[:3])}{', …' if len(alive) > 3 else ''}): stop them, and start them "
            f"again at the end; one that was killed counts until it has been silent for long enough"
        )


def close(side: Side, fence: Fence, reason: str, record: MoveRecord) -> None:
    """Fence a side off, unless *record* is not what is written down there any more: then leave it as it should be."""
    side.movable.fence_off(fence, reason)
    now = side.movable.move_record()
    if not same_move(now, record):
        if now is None or now.state is MoveState.DONE:
            side.movable.lift_fence()  # it was opened while the fence was made
        raise MoveOvertaken


def drain(
    side: Side,
    on_progress: OnProgress,
    record: MoveRecord,
    *,
    wait: timedelta,
    hand_back: bool,
    stop: bool,
) -> int:
    """Wait until no claim is held; how many jobs were taken from their nodes."""
    waiting = Drain(side, Clockwork(Stage.DRAIN, on_progress), record, wait=wait, hand_back=hand_back)
    if stop:
        waiting.ask_nodes_to_stop()
    waiting.run()
    return waiting.handed_back
