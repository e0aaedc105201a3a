"""An idle cluster writes beats, and nothing else: counted by statements, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import monitoring

from ratchet import Options, Scheduler
from ratchet.model.status import JobStatus
from ratchet.stores.sql.dialects.mysql.session import MysqlSession
from ratchet.stores.sql.dialects.postgresql.session import PostgresqlSession
from ratchet.stores.sql.dialects.sqlite.session import SqliteSession
from tests.cluster import errands
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NODES = 5
#: Every service comes round often, so that each of them is seen many times.
BUSYBODY = Options(
    heartbeat=0.25,
    silence=120,
    concurrency=1,
    async_concurrency=1,
    process_concurrency=1,
    pool_size=3,
    expiry_interval=0.2,
    maintenance_interval=0.2,
    poll_delay_burst=0.2,
    poll_delay_min=0.2,
    poll_delay_max=0.2,
)
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "CREATE", "MERGE", "COPY")
SENDERS = ("execute", "rows", "insert_rows", "update_rows")


class Recorder(monitoring.CommandListener):
    """What changes something, as long as it listens."""

    def __init__(self) -> None:
        self.listens = False
        self.writes: list[str] = []

    def note(self, statement: str) -> None:
        if self.listens:
            self.writes.append(statement)

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in ("insert", "update", "delete", "findAndModify", "findandmodify"):
            self.note(f"{event.command_name} {event.command[event.command_name]}")

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


_recorder = Recorder()
monitoring.register(_recorder)  # for good: a client only hears of listeners that were there before it


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Listens to every session of this process."""
    for session in (SqliteSession, PostgresqlSession, MysqlSession):
        for name in SENDERS:
            _listen(monkeypatch, session, name)
    _recorder.writes.clear()
    yield _recorder
    _recorder.listens = False


def _listen(monkeypatch: pytest.MonkeyPatch, session: type, name: str) -> None:
    original = getattr(session, name)

    def noted(this: Any, text: str, *args: Any, **kwargs: Any) -> Any:
        words = " ".join(text.split())
        if any(word in WRITES for word in words.replace("(", " ").split()) and "FOR UPDATE" not in words:
            _recorder.note(words[:100])
        return original(this, text, *args, **kwargs)

    monkeypatch.setattr(session, name, noted)


def prepare(url: str) -> None:
    """A little of everything that does not need anybody now: ended jobs, a dead letter, one for tomorrow, a schedule."""
    scheduler = Scheduler(url, allow=["tests.cluster"], options=Options(concurrency=2))
    scheduler.schedule(86_400, errands.greet, "later").submit()
    scheduler.schedule(86_400, errands.greet, "expiring").with_expiry(90_000).submit()
    scheduler.enqueue(errands.greet, "held").await_signal("go").submit()
    scheduler.schedule_recurring("@yearly", errands.greet, "new year", name="yearly")
    with scheduler:
        done = scheduler.enqueue(errands.greet, "ann").then(errands.declared).submit()
        failed = scheduler.enqueue(errands.fail).with_max_retries(0).submit()
        assert done.wait(timeout=60) is JobStatus.SUCCEEDED
        assert failed.wait(timeout=60) is JobStatus.FAILED
    scheduler.close()


def test_five_idle_nodes_write_beats_only(url: str, recorder: Recorder) -> None:
    """Each node has beaten eight times and every service has come round: no other statement changed anything."""
    prepare(url)
    schedulers = [Scheduler(url, allow=["tests.cluster"], options=BUSYBODY) for _ in range(NODES)]
    watcher = schedulers[0]

    def beats() -> list[int]:
        return [node.beat for node in watcher.nodes.list()]

    try:
        for scheduler in schedulers:
            scheduler.start()
        until(lambda: len(beats()) == NODES and min(beats()) >= 3, 60, "not all nodes have come up")
        recorder.listens = True
        before = beats()
        until(lambda: min(beats()) >= max(before) + 8, 90, "not all nodes have beaten eight times")
        recorder.listens = False
    finally:
        for scheduler in schedulers:
            scheduler.close()
    assert len(recorder.writes) >= 8 * NODES, "the beats themselves must have been seen"
    others = [write for write in recorder.writes if not is_beat(write)]
    assert others == []


def is_beat(write: str) -> bool:
    """A beat that changes nothing but the counter."""
    return write.startswith(
        "UPDATE scheduler_node SET beat = beat + 1, last_beat_at = :now WHERE"
    ) or write in (
        "findAndModify scheduler_node",
        "findandmodify scheduler_node",
    )
