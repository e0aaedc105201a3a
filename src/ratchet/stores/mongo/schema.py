"""
The collections and their indexes, made at start, and the version that says which of them there are.

Making a collection or an index that is there already changes nothing, so a start that was killed in the
middle is simply done again. One document records each step; two processes that start at once both do
the work, and one of them records it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs
from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import CollectionInvalid, DuplicateKeyError, OperationFailure

from ratchet.model.errors import SchemaOutOfDate, SchemaTooNew
from ratchet.model.status import JobStatus
from ratchet.model.upgrades import PlannedChange, PlannedMigration, TableLock, UpgradePlan
from ratchet.spi.store.audit import pending_entry

if TYPE_CHECKING:
    from ratchet.stores.mongo.connections import Collections
    from ratchet.stores.mongo.database import Database

_DAY: Final = 86_400
_HOUR: Final = 3_600
_EXISTS: Final = 48  # NamespaceExists


class Names:
    """The names of the collections; those of the SQL tables, as far as both have them."""

    JOBS: Final = "scheduler_job"
    ARCHIVE: Final = "scheduler_job_archive"
    STREAMS: Final = "scheduler_stream"
    QUEUES: Final = "scheduler_queue"
    BUSINESS_KEYS: Final = "scheduler_business_key_reservation"
    IDEMPOTENCY_KEYS: Final = "scheduler_idempotency_key"
    STILL_RUNNING: Final = "scheduler_lingering_run"
    EXECUTIONS: Final = "scheduler_job_execution"
    LOGS: Final = "scheduler_job_log"
    BATCHES: Final = "scheduler_batch"
    BATCH_METRICS: Final = "scheduler_batch_metrics"
    DEPENDENCIES: Final = "scheduler_dependency"
    SCHEDULES: Final = "scheduler_recurring_job"
    FIRES: Final = "scheduler_recurring_fire"
    SIGNALS: Final = "scheduler_signal"
    SIGNAL_GATES: Final = "scheduler_signal_gate"
    LOCKS: Final = "scheduler_lock"
    NODES: Final = "scheduler_node"
    LIMITS: Final = "scheduler_resource_limit"
    PERMITS: Final = "scheduler_resource_permit"
    BREAKERS: Final = "scheduler_circuit_breaker"
    ALERTS: Final = "scheduler_dlq_alert"
    WAKEUPS: Final = "scheduler_wakeup"
    FLOW: Final = "scheduler_flow"
    AUDIT: Final = "scheduler_audit"
    MOVES: Final = "scheduler_move"
    VERSION: Final = "ratchet_schema_version"


ALL_NAMES: Final = tuple(
    value for name, value in vars(Names).items() if name.isupper() and value != Names.VERSION
)

#: Documents in one answer; the server's own first answer has no more than a hundred.
BATCH: Final = 10_000

CLAIM_INDEX: Final = "claim"
RUNNING_INDEX: Final = "running"
_PENDING: Final = {"status": JobStatus.PENDING.value}
_RUNNING: Final = {"status": JobStatus.RUNNING.value}


def _present(name: str) -> dict[str, Any]:
    return {name: {"$exists": True}}


def _index(name: str, *keys: str, **options: Any) -> IndexModel:
    pairs = [(key.lstrip("-"), DESCENDING if key.startswith("-") else ASCENDING) for key in keys]
    return IndexModel(pairs, name=name, **options)


#: The indexes of the first version, by collection.
INDEXES: Final[dict[str, list[IndexModel]]] = {
    # few, because the server looks at all of them whenever one changes, and each claim and each end changes one
    Names.JOBS: [
        # only PENDING jobs are in it: neither history nor running jobs make a claim more expensive
        _index(CLAIM_INDEX, "stream_id", "priority", "due_at", "_id", partialFilterExpression=_PENDING),
        _index(RUNNING_INDEX, "node_id", partialFilterExpression=_RUNNING),
        _index("links", "links", "_id", partialFilterExpression=_present("links")),
        _index("deadline", "deadline_at", sparse=True),
        _index(
            "dead_letter", "dead_lettered_at", "_id", partialFilterExpression=_present("dead_lettered_at")
        ),
    ],
    Names.ARCHIVE: [
        _index("archived", "archived_at", "_id"),
        _index("links", "links", "_id", partialFilterExpression=_present("links")),
    ],
    Names.STREAMS: [_index("key", "key_hash", unique=True)],
    Names.BUSINESS_KEYS: [_index("job", "job_id"), _index("lingering", "claim_id", sparse=True)],
    Names.STILL_RUNNING: [_index("node", "node_id"), _index("job", "_id.job_id")],
    Names.EXECUTIONS: [_index("job", "_id.job_id")],
    Names.LOGS: [_index("job", "_id.job_id", "_id.claim_id", "_id.sequence"), _index("at", "at")],
    Names.BATCHES: [
        _index("parent", "parent_id"),
        _index("unfinished", "finished_at", "_id"),
        _index("unsealed", "_id", "sealed", partialFilterExpression={"sealed": False}),
    ],
    Names.DEPENDENCIES: [_index("parent", "_id.parent_id"), _index("child", "_id.child_id")],
    Names.SCHEDULES: [_index("due", "next_fire_at", "_id", partialFilterExpression=_present("next_fire_at"))],
    Names.FIRES: [_index("latest", "_id.schedule", "-_id.fire_at")],
    Names.SIGNALS: [_index("key", "spec.key", "_id")],
    # only what was forgotten is removed by the server's clock, a day or an hour late
    Names.SIGNAL_GATES: [_index("forgotten", "passed_at", expireAfterSeconds=_HOUR)],
    Names.LOCKS: [_index("forgotten", "forget_at", expireAfterSeconds=0), _index("holder", "holder")],
    Names.PERMITS: [
        _index("resource", "_id.resource"),
        _index("job", "_id.job_id"),
        _index("node", "node_id"),
    ],
    Names.ALERTS: [_index("job", "job_id"), _index("created", "created_at", "_id")],
    Names.WAKEUPS: [_index("old", "at", expireAfterSeconds=60)],
}


AUDIT_INDEXES: Final = [
    _index("at", "at", "_id"),
    _index("job", "job_id", "at", partialFilterExpression=_present("job_id")),
]

TURNS_INDEXES: Final = [_index("turns", "lane", "suspect", "fairness_key", "_id")]


def _make_everything(collections: Collections) -> None:
    for name in ALL_NAMES:
        _make(collections, name)
        if indexes := INDEXES.get(name):
            collections[name].create_indexes(indexes)


def _make(collections: Collections, name: str) -> None:
    """In a transaction no collection can be made beside an index build, so all are made before."""
    try:
        collections.database.create_collection(name)
    except CollectionInvalid:
        return  # it is there
    except OperationFailure as error:
        if error.code != _EXISTS:
            raise


@dataclass(frozen=True)
class Step:
    """
    One version of the schema; ``apply`` may be interrupted and done again.

    ``serves``: the number of the oldest step whose code works on this schema; None: only code that has this step.
    """

    name: str
    apply: Callable[[Collections], None] = field(compare=False)
    serves: int | None = None
    #: The collections that it makes, with their indexes.
    makes: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The number in the name."""
        return int(self.name[1:].partition("__")[0])


def _nothing(collections: Collections) -> None:
    """
    Since this step the version says which older code it serves.

    No validators: a collection's validator also refuses each update of a document that was bad before, so that a claim could not
    take it out of the queue, and the server checks every write of every document against it.
    """


def _new_fields(collections: Collections) -> None:
    """A queue can have a time until which it is paused. Code of an earlier version does not look at it: for it the pause has no end."""


def _node_requests(collections: Collections) -> None:
    """A node's document can say what a person asks of it. A node of an earlier version never looks."""


def _make_flow(collections: Collections) -> None:
    """Rates of each minute; their key is their order, so there is no other index."""
    _make(collections, Names.FLOW)


def _make_audit(collections: Collections) -> None:
    """The audit log: who changed what. Code of an earlier version writes none."""
    _make(collections, Names.AUDIT)
    collections[Names.AUDIT].create_indexes(AUDIT_INDEXES)


def _make_moves(collections: Collections) -> None:
    """How far a move to or from another store has come. Only `ratchet db move` writes it."""
    _make(collections, Names.MOVES)


def _limits_of_keys(collections: Collections) -> None:
    """
    A limit's document can say when a submission last asked for it: then it was made for a key, and goes when no job has the key.

    And an index of the order in which keys take turns: among thousands a claim looks only at those whose turn is next.
    """
    collections[Names.STREAMS].create_indexes(TURNS_INDEXES)


STEPS: Final = (
    Step("V001__initial", _make_everything, makes=ALL_NAMES),
    Step("V002__checks", _nothing, serves=1),
    Step("V003__queue_pauses", _new_fields, serves=1),
    Step("V004__node_requests", _node_requests, serves=1),
    Step("V005__flow", _make_flow, serves=1, makes=(Names.FLOW,)),
    Step("V006__audit", _make_audit, serves=1, makes=(Names.AUDIT,)),
    Step("V007__moves", _make_moves, serves=1, makes=(Names.MOVES,)),
    Step("V008__key_limits", _limits_of_keys, serves=1),
)

#: What a plan says of the collections that a step makes.
MAKES: Final = "makes the collection and its indexes"
#: The number of the step since which the version says which older code each later step serves.
SERVING_FROM: Final = 2
#: The number of the step since which there is an audit log.
AUDITED_FROM: Final = next(step.version for step in STEPS if step.apply is _make_audit)


def _record(collections: Collections, step: Step, record: dict[str, Any], made: Sequence[str]) -> None:
    """Say that a step was applied; who did it, if that is written down, in one transaction with it."""
    pending = pending_entry.get()
    if pending is None or step.version < AUDITED_FROM:
        collections[Names.VERSION].insert_one(record)
        return
    from ratchet.stores.mongo.documents.audit_entries import change_of

    entry = structs.replace(pending.entry(len(made)), reason=", ".join(made))
    new = not pending.is_written
    with collections.database.client.start_session() as session, session.start_transaction():
        collections[Names.VERSION].insert_one(record, session=session)
        collections[Names.AUDIT].update_one(
            {"_id": entry.id}, change_of(entry, new), upsert=new, session=session
        )


class Schema:
    """Makes and upgrades the collections, and says whether they fit this version."""

    def __init__(self, database: Database, steps: tuple[Step, ...] = STEPS) -> None:
        self._database = database
        self._steps = steps

    def migrate(self) -> list[str]:
        """Apply what is missing; the names of the steps that this call has recorded."""
        applied = self._applied()
        self._refuse_newer(applied)
        made: list[str] = []
        for step in self._steps:
            if step.name not in applied and self._apply(step, [*made, step.name]):
                made.append(step.name)
                pending = pending_entry.get()
                if pending is not None and step.version >= AUDITED_FROM:
                    pending.settle(len(made))
        return made

    def roll_back(self) -> list[str]:
        """
        Let code of 0.1.0 start on this schema again; the steps that it does not see any more.

        Collections and indexes stay. `migrate` does the steps again, which changes nothing where they were done.
        """
        applied = self._applied()
        self._refuse_newer(applied)
        later = [step for step in self._steps[1:] if step.name in applied]
        oldest = self._steps[0].version
        if refusing := [step.name for step in later if step.serves is None or step.serves > oldest]:
            raise SchemaTooNew(
                f"the schema of Ratchet in {self._database.where} cannot serve code of 0.1.0 any more: it has "
                f"{', '.join(refusing)}; roll back to a version that it serves"
            )
        names = [step.name for step in later]
        self._database.unprepared(
            lambda collections: collections[Names.VERSION].delete_many({"_id": {"$in": names}})
        )
        return names

    def check(self) -> None:
        """Nothing if the schema fits; otherwise `SchemaOutOfDate` or `SchemaTooNew`."""
        applied = self._applied()
        self._refuse_newer(applied)
        if missing := [step.name for step in self._steps if step.name not in applied]:
            state = f"lacks {', '.join(missing)}" if applied else "does not exist yet"
            raise SchemaOutOfDate(
                f"the schema of Ratchet in {self._database.where} {state}; run `ratchet db upgrade` with the URL of "
                f"this database, or set the option auto_migrate (RATCHET_AUTO_MIGRATE=true)"
            )

    def plan(self) -> UpgradePlan:
        """
        What `migrate` would do now; nothing is changed.

        Nobody waits for any of it: documents have no schema, and indexes are built while others write.
        """
        applied = self._applied()
        self._refuse_newer(applied)
        newest = max((step.version for step in self._steps if step.name in applied), default=0)
        missing = [step for step in self._steps if step.name not in applied]
        return UpgradePlan(
            migrations=tuple(
                PlannedMigration(
                    name=step.name,
                    changes=tuple(
                        PlannedChange(table=name, does=MAKES, waits=TableLock.NOBODY) for name in step.makes
                    ),
                    stays=not newest or (step.serves is not None and step.serves <= newest),
                )
                for step in missing
            ),
            is_new=not newest,
            restarts=bool(missing) and newest >= SERVING_FROM,
        )

    def status(self) -> list[tuple[str, bool]]:
        """Every step of this version, and whether it has been applied."""
        applied = self._applied()
        return [(step.name, step.name in applied) for step in self._steps]

    def _apply(self, step: Step, made: Sequence[str]) -> bool:
        def apply(collections: Collections) -> bool:
            step.apply(collections)
            record: dict[str, Any] = {"_id": step.name, "applied_at": datetime.now(UTC)}
            if step.serves is not None:
                record["serves"] = step.serves
            try:
                _record(collections, step, record, made)
            except DuplicateKeyError:
                return False  # another process was faster
            return True

        return self._database.unprepared(apply)

    def _applied(self) -> dict[str, int | None]:
        """The names of the steps that were applied, and the oldest code that each of them serves."""
        return self._database.unprepared(
            lambda collections: {
                str(one["_id"]): one.get("serves") for one in collections[Names.VERSION].find()
            }
        )

    def _refuse_newer(self, applied: Mapping[str, int | None]) -> None:
        known = {step.name for step in self._steps}
        ours = max(step.version for step in self._steps)
        # A newer version has upgraded the schema, and says whether code of this version still works on it.
        newer = sorted(
            name for name, serves in applied.items() if name not in known and not (serves and serves <= ours)
        )
        if newer:
            raise SchemaTooNew(
                f"the schema of Ratchet in {self._database.where} has {', '.join(newer)}, which this version of Ratchet does "
                f"not know; it was upgraded by a newer one: upgrade this installation"
            )
