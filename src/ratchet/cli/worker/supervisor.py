"""
The supervisor of ``ratchet worker``: a process without user code that keeps its children alive.

It starts them, beats for them, replaces those that die, and drains them when it is told to stop.
It never imports the app: all it knows of the app, a child has reported over a pipe.
"""

from __future__ import annotations

import logging
import selectors
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ratchet.cli.worker.child_process import ChildProcess, nodes_to_beat_for
from ratchet.cli.worker.child_slot import LONGEST_PAUSE, ChildSlot
from ratchet.cli.worker.heartbeats import Heartbeats
from ratchet.cli.worker.messages import Drain, Failed, Leaving, Quit, Ready, Report, RescueNode, WakeOthers
from ratchet.cli.worker.os_signals import SignalInbox
from ratchet.cli.worker.source_watch import SourceWatch
from ratchet.config import shown_url
from ratchet.model.durations import format_duration
from ratchet.model.status import Lane

if TYPE_CHECKING:
    from ratchet.cli.worker.probes import Probes
    from ratchet.cli.worker.systemd import Notifier

logger = logging.getLogger("ratchet.worker")

#: How long the loop waits, in seconds, when nothing happens.
TICK = 0.5
#: A child is killed this long after its drain timeout: it needs time to interrupt jobs, write and end.
DRAIN_MARGIN = 10.0
#: A child is killed this long after it was told to end at once.
QUIT_MARGIN = 2.0
#: A child that hangs is killed this long after SIGABRT, which makes it print where it hangs.
ABORT_MARGIN = 2.0
#: How long a child may take to finish its jobs when the source code has changed.
RELOAD_DRAIN = 5.0
#: How long the first child may wait for a database that is away.
FIRST_START_LIMIT = 60.0
#: A supervisor, or a poll loop, that has stood still for so many seconds is told by the probes.
STALLED = 30.0
#: A child that has reported nothing for so many seconds claims nothing: a job holds its interpreter, or it hangs.
SILENT = 10.0
#: A second Ctrl-C within this time is the same one, sent by the terminal and again by a wrapper.
SAME_KEYSTROKE = 0.3


class Phase(Enum):
    """Where the supervisor is in its life."""

    RUNNING = "running"
    DRAINING = "draining"
    QUITTING = "quitting"


class Condition(NamedTuple):
    """What keeps a worker from being alive, and what more keeps it from being ready; both empty if all is well."""

    faults: list[str]
    missing: list[str]


class Supervisor:
    """Keeps *processes* children running until it is told to stop; `run` returns the exit code."""

    def __init__(
        self,
        start_child: Callable[[], ChildProcess],
        *,
        processes: int = 1,
        unresponsive_after: float | None = 120.0,
        drain_timeout: float | None = None,
        sources: SourceWatch | None = None,
        probes: Probes | None = None,
        notifier: Notifier | None = None,
        heartbeats: Callable[[Callable[[], list[str]]], Heartbeats] = Heartbeats,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = [ChildSlot(number, start_child) for number in range(1, processes + 1)]
        self._leaving: list[ChildProcess] = []
        self._unresponsive_after = unresponsive_after
        self._drain_timeout = drain_timeout
        self._sources = sources
        self._probes = probes
        self._notifier = notifier
        self._monotonic = monotonic
        self._heartbeats = heartbeats(lambda: nodes_to_beat_for(self._children()))
        self._phase = Phase.RUNNING
        self._exit_code = 0
        self._ever_ready = False
        self._started_at = self._looped_at = self._looked_at = monotonic()
        self._interrupted_at: float | None = None
        self._to_renew: list[ChildSlot] = []
        self._to_rescue: list[RescueNode] = []
        self._said: set[str] = set()
        #: Processes that ended without being told to.
        self.deaths = 0
        self._selector = selectors.DefaultSelector()
        self._signals = SignalInbox(monotonic)

    # --- the loop

    def run(self) -> int:
        """Work until told to stop, or until it is clear that no child can start."""
        self._selector.register(self._signals.descriptor, selectors.EVENT_READ)
        if self._probes is not None:
            logger.info("probes and metrics on %s", self._probes.start(self.condition, lambda: self.deaths))
        with self._signals.open():
            try:
                while not self._is_over():
                    self._loop_once()
                    self._wait()
            finally:
                # Children are left only if something above has failed. They see that their pipe has ended, and drain.
                for child in self._children():
                    child.close()
                self._heartbeats.close()
                self._selector.close()
                if self._probes is not None:
                    self._probes.close()
        logger.info("stopped")
        return self._exit_code

    def _loop_once(self) -> None:
        now = self._monotonic()
        self._ignore_own_pause(now)
        for number, at in self._signals.take():
            self._obey(number, at, now)
        for child in self._children():
            self._attend(child, now)
        if self._probes is not None:
            self._probes.snapshots.living = [
                (slot.number, child.pid) for slot in self._slots for child in slot.children
            ]
        if self._phase is Phase.RUNNING:
            self._reload(now)
            self._renew_spent(now)
            self._renew_next()
            self._fill(now)
            self._rescue_dead()
        self._enforce(now)
        if self._notifier is not None:
            self._notify(self._notifier)

    def _notify(self, notifier: Notifier) -> None:
        """Tell systemd how the worker is."""
        if self._phase is not Phase.RUNNING:
            notifier.stopping()
            notifier.status(f"stopping: {len(self._children())} processes finish their jobs")
        elif self._ever_ready:
            notifier.ready()
            ready = sum(
                1 for slot in self._slots if slot.current is not None and slot.current.ready is not None
            )
            notifier.status(f"{ready} of {len(self._slots)} processes run jobs")
        notifier.alive(not self.condition().faults)

    def condition(self) -> Condition:
        """How the worker is, for its probes; asked from their thread, so it only reads."""
        now = self._monotonic()
        faults, missing = [], []
        if now - self._looped_at > STALLED:
            faults.append(
                f"the supervisor has not looked after its processes for {now - self._looped_at:.0f} s"
            )
        if self._phase is not Phase.RUNNING:
            missing.append("it is stopping")
        for slot in self._slots:
            child = slot.current
            if slot.retired:
                missing.append(f"process {slot.number} was stopped")
                continue
            if child is None or child.ready is None or not child.is_running:
                missing.append(f"process {slot.number} is not ready")
                continue
            if child.given_up:
                faults.append(f"process {slot.number} shows no sign of life")
            if child.stopped:
                missing.append(f"process {slot.number} is stopped")
            elif (silence := now - child.heard_at) > SILENT:
                missing.append(f"process {slot.number} has shown no sign of life for {silence:.0f} s")
            if child.overdue > STALLED:
                missing.append(f"process {slot.number} has not looked for jobs for {child.overdue:.0f} s")
            if child.pulse is not None:
                faults += [
                    f"process {slot.number}: {lane} jobs do not run: {why}"
                    for lane, why in child.pulse.dead.items()
                ]
                if child.pulse.drained:
                    missing.append(f"process {slot.number} was asked to take no jobs")
                if child.pulse.claims_fail:
                    missing.append(f"process {slot.number} cannot claim jobs; the log says why")
        return Condition(faults, missing)

    def _is_over(self) -> bool:
        return self._phase is not Phase.RUNNING and not self._children()

    def _children(self) -> list[ChildProcess]:
        return [child for slot in self._slots for child in slot.children] + list(self._leaving)

    def _fill(self, now: float) -> None:
        for slot in self._slots:
            try:
                if slot.fill(now) and slot.current is not None:
                    self._selector.register(slot.current.status, selectors.EVENT_READ)
            except OSError as error:
                logger.error("a process could not be started: %s", error)
                slot.restart_at = now + LONGEST_PAUSE

    def _ignore_own_pause(self, now: float) -> None:
        """After a pause of its own (SIGSTOP, a sleeping machine), do not blame children for their silence meanwhile."""
        pause = now - self._looped_at
        if pause > 10 * TICK:
            for child in self._children():
                child.heard_at += pause
        self._looped_at = now

    # --- children

    def _attend(self, child: ChildProcess, now: float) -> None:
        """Look after one child: ask the system about it, read its reports, and notice its end."""
        child.observe()
        for report in child.listen():
            self._hear(child, report, now)
        if child.is_mute:
            self._unwatch(child)
        if not child.is_running:
            self._forget(child, now)

    def _hear(self, child: ChildProcess, report: Report, now: float) -> None:
        match report:
            case Ready():
                self._welcome(child, report)
            case Failed():
                self._say_once(report.message)
            case Leaving():
                logger.log(
                    logging.WARNING if report.replace else logging.INFO,
                    "process %d leaves: %s",
                    child.pid,
                    report.reason,
                )
                slot = self._slot_of(child)
                if slot is not None and slot.current is child and self._phase is Phase.RUNNING:
                    slot.vacate(now)
                    if not report.replace:
                        self._retire(slot)
                    self._leaving.append(child)
                    child.deadline = now + self._drain_limit(child) + DRAIN_MARGIN

    def _retire(self, slot: ChildSlot) -> None:
        """The node of this slot was stopped from afar: it gets no other process, and the last one ends the worker."""
        slot.retired = True
        if slot.successor is not None:
            self._dismiss(slot.successor, self._drain_limit(slot.successor))
            slot.successor = None
        if all(each.retired for each in self._slots):
            logger.info("every node of this worker was asked to stop: the worker ends")
            self._phase = Phase.DRAINING

    def _welcome(self, child: ChildProcess, ready: Ready) -> None:
        self._ever_ready = True
        self._said.clear()
        logger.info(
            "process %d is ready as node %s on %s: at most %d threads, %d coroutines and %d processes run jobs; "
            "when it stops, they have %s to finish",
            child.pid,
            ready.node_id,
            shown_url(ready.url),
            *(ready.slots.get(lane, 0) for lane in Lane),
            format_duration(timedelta(seconds=self._drain_limit(child))),
        )
        if self._probes is not None:
            try:
                self._probes.store_is(ready.url, ready.options)
            except Exception as error:
                logger.error("the metrics of the store cannot be served: %s", error)
        try:
            self._heartbeats.start(ready)
        except Exception as error:
            logger.error("the supervisor cannot beat for its processes: %s; they beat for themselves", error)
        slot = self._slot_of(child)
        if slot is not None and slot.successor is child:
            old = slot.promote()
            if old is not None:
                self._dismiss(old, None if old.unhurried else self._drain_limit(old))

    def _forget(self, child: ChildProcess, now: float) -> None:
        """A child has ended: close its pipes, take care of the jobs it held, and plan its replacement."""
        self._unwatch(child)
        stacks = child.last_stacks()
        if stacks is not None:
            self._log_stacks(child, stacks)
        obituary = child.obituary()
        child.close()
        if self._probes is not None:
            self._probes.snapshots.forget(child.pid)
        slot = self._slot_of(child)
        if child.leaving or self._phase is not Phase.RUNNING:
            if child.given_up and child.node_id is not None:
                self._heartbeats.release(child.node_id)
                for other in self._children():
                    other.tell(WakeOthers())
            elif child.exit_code != 0 and obituary is not None:
                self._to_rescue.append(obituary)
            if child in self._leaving:
                self._leaving.remove(child)
            elif slot is not None:
                self._remove(slot, child, now)
        elif slot is not None:
            self.deaths += 1
            slot.lost(child, now)
            if obituary is not None:
                self._to_rescue.append(obituary)
            self._note_loss(slot, child, now)

    @staticmethod
    def _log_stacks(child: ChildProcess, stacks: str) -> None:
        record = logger.makeRecord(
            logger.name, logging.ERROR, "", 0, "process %d %s; its threads were here:",
            (child.pid, child.describe_end()), None,
        )  # fmt: skip
        record.exc_text, record.node_id = stacks, child.node_id
        logger.handle(record)

    def _note_loss(self, slot: ChildSlot, child: ChildProcess, now: float) -> None:
        """A child has ended by itself: say so."""
        if child.failure is not None:
            self._note_failure(child.failure, now)
        else:
            logger.error("process %d %s; it is replaced", child.pid, child.describe_end())
        if slot.restart_at is not None and slot.restart_at > now and slot.current is None:
            logger.warning("the next process is started in %.1f s", slot.restart_at - now)

    def _rescue_dead(self) -> None:
        """Have a live child rescue the jobs of dead ones. If none can, other nodes will notice the silence."""
        for child in self._children():
            if child.ready is not None and child.is_running and not (child.stopped or child.leaving):
                while self._to_rescue:
                    child.tell(self._to_rescue.pop(0))
                return

    @staticmethod
    def _remove(slot: ChildSlot, child: ChildProcess, now: float) -> None:
        if slot.successor is child:
            slot.successor = None
        else:
            slot.vacate(now)

    def _note_failure(self, failure: Failed, now: float) -> None:
        """A child could not start. If none ever has, try again only while the database may come back."""
        if self._ever_ready or self._sources is not None:
            return
        if not failure.passing or now - self._started_at > FIRST_START_LIMIT:
            logger.error("no process could be started; giving up")
            self._exit_code = 1
            self._drain(now)

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            logger.error("%s", message)

    def _slot_of(self, child: ChildProcess) -> ChildSlot | None:
        return next((slot for slot in self._slots if child in slot.children), None)

    def _unwatch(self, child: ChildProcess) -> None:
        try:
            self._selector.unregister(child.status)
        except (KeyError, ValueError):
            pass

    # --- leaving

    def _dismiss(self, child: ChildProcess, timeout: float | None) -> None:
        """Tell a child to finish its jobs and end; without a *timeout*, whenever that is."""
        if child not in self._leaving:
            self._leaving.append(child)
        child.leaving = True
        child.deadline = None if timeout is None else self._monotonic() + timeout + DRAIN_MARGIN
        child.tell(Drain(unhurried=True) if timeout is None else Drain(timeout=timeout))

    def _drain_limit(self, child: ChildProcess) -> float:
        if self._drain_timeout is not None:
            return self._drain_timeout
        return child.ready.drain_timeout if child.ready is not None else 0.0

    def _drain(self, now: float) -> None:
        self._phase = Phase.DRAINING
        for child in self._leaving:
            if child.deadline is None:
                self._dismiss(child, self._drain_limit(child))
        for slot in self._slots:
            children, slot.current, slot.successor = slot.children, None, None
            for child in children:
                self._dismiss(child, self._drain_limit(child))

    def _quit(self, now: float) -> None:
        self._phase = Phase.QUITTING
        for child in self._children():
            child.leaving = True
            child.deadline = now + QUIT_MARGIN
            child.tell(Quit())

    def _enforce(self, now: float) -> None:
        """Kill children that have not ended in time, and those that show no sign of life although not stopped."""
        for child in self._children():
            if child.deadline is not None and now >= child.deadline:
                logger.warning("process %d did not end in time and is killed", child.pid)
                child.given_up = True
                child.kill()
                child.deadline = now + DRAIN_MARGIN
            elif self._hangs(child, now):
                self._abort(child, now)

    def _hangs(self, child: ChildProcess, now: float) -> bool:
        limit = self._unresponsive_after
        return (
            limit is not None
            and child.ready is not None
            and child.is_running
            and not child.stopped
            and not child.given_up
            and child.silent_for(now) > limit
        )

    def _abort(self, child: ChildProcess, now: float) -> None:
        logger.error(
            "process %d has shown no sign of life for %.0f s; it is replaced, and its jobs run elsewhere. "
            "Where it hangs follows",
            child.pid,
            child.silent_for(now),
        )
        child.given_up = True
        # On SIGABRT faulthandler prints every thread's stack, also while C code holds the interpreter's lock.
        child.kill(signal.SIGABRT)
        child.deadline = now + ABORT_MARGIN

    # --- new code

    def _reload(self, now: float) -> None:
        if self._sources is None or now - self._looked_at < TICK:
            return
        self._looked_at = now
        changed = self._sources.changed()
        if not changed:
            return
        logger.info("%s changed: restarting", changed[0] if len(changed) == 1 else f"{len(changed)} files")
        self._said.clear()
        for slot in self._slots:
            for child in slot.children:
                self._dismiss(child, min(RELOAD_DRAIN, self._drain_limit(child)))
            slot.successor = None
            slot.crashes = 0
            slot.vacate(now)

    def _renew_spent(self, now: float) -> None:
        """Children that have run enough jobs, or have grown too large, are replaced as by SIGHUP: one after the other."""
        for slot in self._slots:
            child = slot.current
            if child is None or child.pulse is None or child.pulse.spent is None or child.pulse.drained:
                continue
            if now >= slot.renew_at and slot.successor is None and slot not in self._to_renew:
                if not child.unhurried:
                    logger.info("process %d is replaced: %s", child.pid, child.pulse.spent)
                child.unhurried = True
                self._to_renew.append(slot)

    def _renew_next(self) -> None:
        """One step of a rolling restart: start the new child of one slot; the old one leaves when it is ready."""
        if not self._to_renew or any(slot.successor is not None for slot in self._slots):
            return
        slot = self._to_renew.pop(0)
        if slot.renew() and slot.successor is not None:
            self._selector.register(slot.successor.status, selectors.EVENT_READ)

    # --- signals

    def _obey(self, number: int, at: float, now: float) -> None:
        if number in (signal.SIGTERM, signal.SIGINT) and self._phase is Phase.RUNNING:
            logger.info("%s: stopping; running jobs may finish", signal.Signals(number).name)
            self._interrupted_at = at
            self._drain(now)
        elif number == signal.SIGINT and at - (self._interrupted_at or 0.0) > SAME_KEYSTROKE:
            if self._phase is Phase.DRAINING:
                logger.warning("SIGINT again: stopping at once; running jobs are handed back")
                self._quit(now)
        elif number == signal.SIGHUP and self._phase is Phase.RUNNING:
            logger.info("SIGHUP: replacing the processes one after the other")
            self._to_renew = [slot for slot in self._slots if slot.current is not None]

    def receive(self, number: int) -> None:
        """Handle a signal as if it had been sent to this process."""
        self._signals.receive(number)

    def _wait(self) -> None:
        """Wait for a signal, a report, or the time to start a child; never for long."""
        for key, _ in self._selector.select(self._pause()):
            if key.fd == self._signals.descriptor:
                self._signals.quiet()

    def _pause(self) -> float:
        if self._signals:
            return 0.0
        if self._phase is not Phase.RUNNING:
            return TICK / 5
        now = self._monotonic()
        soon = [slot.restart_at - now for slot in self._slots if slot.current is None and slot.restart_at]
        return max(0.0, min([TICK, *soon]))
