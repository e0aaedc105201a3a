"""
A worker's child process: imports the app, runs its node, and reports to the supervisor.

Started as ``python -m ratchet.cli.worker.child shop.jobs:scheduler '{…}'``. This is the process with user
code in it; the supervisor beats for it and replaces it when it dies.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from ratchet.cli.user_app import AppNotUsable, load_scheduler
from ratchet.cli.worker.logs import WorkerFormatter, log_to_stderr, warnings_logged
from ratchet.cli.worker.messages import (
    ChildSettings,
    Drain,
    Failed,
    Leaving,
    LineReader,
    Pulse,
    Quit,
    Ready,
    Report,
    RescueNode,
    WakeOthers,
    decode_command,
    encoded,
    given_options,
)
from ratchet.cli.worker.os_signals import release_interrupts
from ratchet.cli.worker.wear import Wear
from ratchet.config import URL_VARIABLE
from ratchet.engine.assembly import lane_slots
from ratchet.engine.node import Node, Phase
from ratchet.engine.started_runs import StartedRuns
from ratchet.engine.summary import Summary
from ratchet.model.errors import RatchetError, StoreUnavailable
from ratchet.model.options import Options
from ratchet.model.status import Lane
from ratchet.scheduler import Scheduler
from ratchet.scheduler.core import Core
from ratchet.spi.fault_log import FaultLog

if TYPE_CHECKING:
    from ratchet.cli.worker.snapshots import Recorder

logger = logging.getLogger("ratchet.worker")
faults = FaultLog(logger, logging.WARNING)

#: Seconds between two signs of life.
PULSE = 1.0
#: Seconds that a process which is replaced may take for its running jobs: as good as any time.
UNHURRIED = 10 * 365 * 86400.0
#: How long the interpreter may take to end by itself once everything is done.
EXIT_LIMIT = 5.0

#: A warning names at most this many queues.
QUEUES_NAMED = 20

EXIT_FAILED = 1
EXIT_HANDED_BACK = 0


class WorkerChild:
    """One node under a supervisor, from import to exit."""

    def __init__(self, app: str, settings: ChildSettings) -> None:
        self._app = app
        self._settings = settings
        self._leave = threading.Event()
        self._reason = ""
        self._timeout = settings.drain_timeout
        self._starting = False
        self._core: Core | None = None
        self._node: Node | None = None
        self._formatter: WorkerFormatter | None = None
        self._summary: Summary | None = None
        self._recorder: Recorder | None = None

    # --- from import to exit

    def run(self) -> int:
        """Work until told to leave; the exit code."""
        if self._settings.dump is None:
            faulthandler.enable()
        else:
            faulthandler.enable(self._settings.dump)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        # Ctrl-C reaches the whole process group; the supervisor gets it too and decides. A handler that does
        # nothing, because programs that a job starts would inherit an ignored signal.
        signal.signal(signal.SIGINT, lambda number, frame: None)
        release_interrupts()
        threading.Thread(target=self._obey, name="ratchet-control", daemon=True).start()
        try:
            scheduler = self._load()
            core = self._start(scheduler)
        except RatchetError as error:
            self._report(Failed(message=str(error), passing=isinstance(error, StoreUnavailable)))
            return EXIT_FAILED
        self._work(core)
        return self._finish(core)

    def _load(self) -> Scheduler:
        settings = self._settings
        with warnings_logged(as_json=settings.log_json):
            scheduler = load_scheduler(self._app, settings.path)
        self._formatter = log_to_stderr(
            settings.log_level, as_json=settings.log_json, verbose=settings.verbose
        )
        return scheduler

    def _start(self, scheduler: Scheduler) -> Core:
        core = scheduler.backend
        if not isinstance(core, Core):
            raise RatchetError(f"{self._app} is not a scheduler that can be run by a worker")
        settings = self._settings
        if settings.store_named and core.url != os.environ.get(URL_VARIABLE):
            raise AppNotUsable(
                f"{self._app} names its store in its code, so --url cannot choose another; write Scheduler() there"
            )
        core.reconfigure(**self._changes(core.options))
        core.also_import(settings.imports)
        core.supervised = True
        core.on_stop_request = self._stop_for_good
        if settings.started is not None:
            core.started_runs = StartedRuns(settings.started)
            os.close(settings.started)  # programs that a job starts would inherit it
        if settings.metrics is not None:
            from ratchet.cli.worker.snapshots import Recorder

            self._recorder = Recorder(scheduler, settings.metrics)
        self._starting = True
        if self._leave.is_set():
            _exit(EXIT_HANDED_BACK)
        core.start()
        node = core.node
        if node is None:
            raise RatchetError(f"{self._app} did not start")
        self._core, self._node = core, node
        if self._formatter is not None:
            self._formatter.node_id = node.node_id
        self._warn_of_unknown_queues(core)
        self._report(
            Ready(
                node_id=node.node_id,
                url=core.url or "",
                options=given_options(core.options),
                heartbeat=core.options.liveness(supervised=True).heartbeat.total_seconds(),
                drain_timeout=core.drain_time.total_seconds(),
                slots={
                    str(lane): count for lane, count in lane_slots(core.options, os.cpu_count() or 1).items()
                },
                shared=core.url is not None and core.store.capabilities.several_processes,
            )
        )
        os.set_blocking(settings.status, False)  # from here on, a report that nobody reads is dropped
        return core

    def _changes(self, options: Options) -> dict[str, Any]:
        """
        The options that the command line has set.

        ``--concurrency`` alone limits each kind of job: whoever gives one number means all of them.
        """
        settings = self._settings
        given = {
            "concurrency": settings.concurrency,
            "async_concurrency": settings.async_concurrency,
            "process_concurrency": settings.process_concurrency,
            "queues": settings.queues,
            "drain_timeout": settings.drain_timeout,
        }
        if settings.drain_timeout is None and "drain_timeout" not in options.given:
            given["drain_timeout"] = settings.default_drain
        if settings.concurrency is not None:
            if settings.async_concurrency is None:
                given["async_concurrency"] = settings.concurrency
            if settings.process_concurrency is None:
                processes = lane_slots(options, os.cpu_count() or 1)[Lane.PROCESS]
                given["process_concurrency"] = min(settings.concurrency, processes)
        return {name: value for name, value in given.items() if value is not None}

    @staticmethod
    def _warn_of_unknown_queues(core: Core) -> None:
        """A queue need not exist yet; but if others do, a name that was never used may be a typing error."""
        if core.options.queues is None:
            return
        known = {queue.name for queue in core.store.queues()}
        unknown = [name for name in core.options.queues if name not in known]
        if unknown and known:
            logger.warning(
                "no job was ever submitted to queue %s; those that were used are %s",
                ", ".join(unknown),
                ", ".join(sorted(known)[:QUEUES_NAMED]),
            )

    def _work(self, core: Core) -> None:
        """Report until told to leave. The main thread does nothing else, so it handles signals at once."""
        node = self._node
        limit = core.options.stuck_thread_limit
        if node is None:
            return
        self._summary = summary = Summary(node.assembly)
        report = node.assembly.lane_report
        activity = node.assembly.announcer.activity
        wear = Wear(self._settings.max_jobs, self._settings.max_memory, lambda: activity.ended)
        self._record()
        while not self._leave.wait(PULSE):
            summary.run_once()
            self._report(
                Pulse(
                    node_id=node.node_id,
                    overdue=self._overdue(node, core),
                    dead=report.dead(),
                    claims_fail=report.claims_fail(),
                    drained=node.is_drained,
                    spent=wear.reason(),
                )
            )
            self._record()
            if node.stuck >= limit:
                self.leave(f"{node.stuck} threads ignored their interruption", announce=True)

    def _record(self) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.write()
        except Exception as error:  # a collector of the application, or a full disk
            faults.note("the metrics of this process could not be written", error)

    def _overdue(self, node: Node, core: Core) -> float:
        """How many seconds the poll loop is late; an idle loop may wait for long."""
        turned_at = node.pulse()
        if turned_at is None or node.phase is not Phase.RUNNING:
            return 0.0
        longest_rest = max(core.options.poll_delay_idle, core.options.poll_delay_max).total_seconds()
        return max(0.0, time.monotonic() - turned_at - longest_rest)

    def _finish(self, core: Core) -> int:
        """Drain. Jobs that do not end are handed back before this process ends."""
        logger.info("leaving: %s", self._reason)
        threading.Thread(target=self._pulse_while_leaving, name="ratchet-pulse", daemon=True).start()
        ended = core.stop(drain=True, timeout=self._timeout)
        if self._summary is not None:
            self._summary.last_words()
        stuck = self._node.stuck if self._node is not None else 0
        if not ended or stuck:
            self._release()
            _exit(EXIT_HANDED_BACK)
        core.close()
        return 0

    def _pulse_while_leaving(self) -> None:
        while self._node is not None:
            self._report(Pulse(node_id=self._node.node_id))
            time.sleep(PULSE)

    def _release(self) -> None:
        """Hand back all jobs that this node still holds: their code ends with the process, right after this."""
        core, node = self._core, self._node
        if core is None or node is None:
            return
        try:
            node.release()
        except RatchetError as error:
            logger.warning("what was running could not be handed back (%s); others will notice", error)

    # --- commands

    def leave(
        self, reason: str, *, timeout: float | None = None, announce: bool = False, replace: bool = True
    ) -> None:
        """
        Begin to leave; only the first call counts. *announce*: tell the supervisor, which does not know yet.

        It starts another process instead of this one, if it is to *replace* it.
        """
        if self._leave.is_set():
            return
        self._reason = reason
        if timeout is not None:
            self._timeout = timeout
        if announce:
            self._report(Leaving(reason=reason, replace=replace))
        self._leave.set()
        if not self._starting:
            _exit(EXIT_HANDED_BACK)  # still importing: no job is held, and an import cannot be stopped

    def _stop_for_good(self) -> None:
        """Somebody has asked this node to stop, from afar."""
        self.leave("its node was asked to stop", announce=True, replace=False)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self.leave("SIGTERM", announce=True)

    def _obey(self) -> None:
        """Read the supervisor's commands; the end of the pipe means that it is gone."""
        control = self._settings.control
        reader = LineReader(control)
        while not reader.ended:
            select.select([control], [], [])
            for line in reader.lines():
                match decode_command(line):
                    case Drain(unhurried=True):
                        self.leave("it is replaced", timeout=UNHURRIED)
                    case Drain(timeout=timeout):
                        if self._leave.is_set():
                            self._hurry(timeout)
                        self.leave("the supervisor said so", timeout=timeout)
                    case RescueNode() as rescue:
                        self._rescue(rescue)
                    case WakeOthers():
                        self._wake_others()
                    case Quit():
                        self._release()
                        _exit(EXIT_HANDED_BACK)
        self.leave("the supervisor is gone")

    def _hurry(self, timeout: float | None) -> None:
        """It is leaving and had time; now it has *timeout* seconds more."""
        node = self._node
        if node is not None:
            hurry = threading.Timer(self._timeout or 0.0 if timeout is None else timeout, node.hurry)
            hurry.daemon = True
            hurry.start()

    def _wake_others(self) -> None:
        if self._node is not None:
            self._node.assembly.wake_all()

    def _rescue(self, rescue: RescueNode) -> None:
        if self._node is None or self._core is None:
            return
        started = None if rescue.started is None else {int(number, 16) for number in rescue.started}
        try:
            self._node.assembly.orphans.rescue_ended(
                rescue.node_id, self._core.now(), seen=rescue.seen, started=started
            )
        except RatchetError as error:
            logger.warning("node %s was not rescued yet (%s); its silence will tell", rescue.node_id, error)

    def _report(self, report: Report) -> None:
        try:
            os.write(self._settings.status, encoded(report))
        except OSError:
            pass  # the supervisor is gone or does not read; the control pipe tells which


def _exit(code: int) -> NoReturn:
    """End now, whatever other threads do, but write out logs and output first."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the child process."""
    app, settings = arguments if arguments is not None else sys.argv[1:]
    code = WorkerChild(app, msgspec.json.decode(settings, type=ChildSettings)).run()
    # A thread of user code may keep the interpreter from ending: end it after a moment all the same.
    forced_exit = threading.Timer(EXIT_LIMIT, _exit, (code,))
    forced_exit.daemon = True
    forced_exit.start()
    sys.exit(code)


if __name__ == "__main__":
    main()
