"""What a SQL product must answer for the statements to run on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ratchet.model.storage import StoreSize
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.constraint_detector import ConstraintDetector
from ratchet.spi.store import Capabilities
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.errors import FENCED
from ratchet.stores.sql.statement import Statement, translate

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from ratchet.model.decision import Completion
    from ratchet.stores.sql.beside_writers import Index
    from ratchet.stores.sql.claiming.plan import ClaimPlan
    from ratchet.stores.sql.database import Row, Session
    from ratchet.stores.sql.dependants.edges import EdgeWriter
    from ratchet.stores.sql.finish.completions import Facts
    from ratchet.stores.sql.rows.specs import RowWriter
    from ratchet.stores.sql.upgrade_plan import Locks


class Refusal(NamedTuple):
    """A kind of change that a fenced store refuses: a trigger, which holds for every process on the database."""

    table: str
    event: str  # INSERT, UPDATE, DELETE
    condition: str = ""  # about OLD and NEW; empty: every row
    reason: str = ""
    passable: bool = False  # what is done within `Dialect.past_fence` is not refused

    @property
    def name(self) -> str:
        """The name of the trigger."""
        return f"ratchet_fence_{self.table.removeprefix('scheduler_')}_{self.event.lower()}"

    def message(self, most: int = 1000) -> str:
        """What is said, as a literal of at most so many characters."""
        text = (FENCED + self.reason)[:most]
        return "'" + text.replace("'", "`").replace("\\", "/").replace("%", " ") + "'"


class Autocommit(Protocol):
    """Runs a claim outside of a transaction block, where that saves round trips."""

    def claim(self, sql: str, params: Mapping[str, object], *, harmless: bool = False) -> list[Row] | None:
        """
        The rows of a claim; None where it could not be sent: make it in a transaction.

        `CommitUnknown` where no answer came: a claim must not be made twice under one id. *harmless*: a statement that
        looks as a claim does, but takes nothing; for that it is None.
        """
        ...


class Dialect(ABC):
    """
    One SQL product: how it connects, begins and locks, and what its errors mean.

    Everything that differs between products is here and in the subclasses; the nouns never
    ask which one they run on.
    """

    name: str
    capabilities: Capabilities
    constraints: ConstraintDetector
    claim_plan: ClaimPlan
    row_writer: RowWriter
    #: Three ends that are one statement where a WITH may insert, update and delete, and several elsewhere.
    write_successes: Callable[[Session, Sequence[Completion], datetime], dict[int, Facts]]
    count_ends: Callable[[Session, Sequence[Row], Sequence[Row]], list[UUID]]
    edge_writer: EdgeWriter
    #: None: a statement alone costs no fewer round trips than in a transaction.
    autocommit: Autocommit | None = None
    #: True: the first use creates or upgrades the schema without being asked.
    migrates_itself: bool = False
    #: True: one writer at a time, so a second transaction inside a transaction would wait for itself.
    one_writer: bool = False
    #: True: a migration script that fails leaves nothing; False: the next run goes on where it stopped.
    transactional_ddl: bool = True
    #: Who waits, and how long, while a migration script changes a table that is in use.
    upgrade_locks: Locks
    #: True: a subquery reads a range of an index whose bounds come from the outer row. False: it reads the whole prefix, but
    #: a GROUP BY skips from group to group.
    seeks_ranges: bool = True
    #: Macros that are one word.
    words: dict[str, str]

    def __init__(self) -> None:
        # filters make many different texts; the fixed ones are used all the time and stay cached
        self.statement = lru_cache(maxsize=2048)(self._translate)

    def _translate(self, sql: str) -> Statement:
        return translate(sql, self)

    # --- text ---------------------------------------------------------------------------------

    @abstractmethod
    def bind(self, name: str) -> str:
        """How a bind is written."""

    @abstractmethod
    def literal(self, text: str) -> str:
        """A quoted literal, a comment or a percent sign, safe for the driver's own bind syntax."""

    @abstractmethod
    def table(self, name: str) -> str:
        """A table of ours, qualified where a schema was configured."""

    @abstractmethod
    def member(self, name: str, kind: Kind, *, negated: bool) -> str:
        """What follows a column to test its membership in the list bind *name*."""

    @abstractmethod
    def rowset(self, name: str, columns: Sequence[tuple[str, Kind]]) -> str:
        """A FROM item named *name* with these columns, from the bind *name*."""

    @abstractmethod
    def lock(self, mode: str, of: str | None, *, skip_locked: bool) -> str:
        """A locking clause; empty where there is one writer anyway."""

    # --- transactions -------------------------------------------------------------------------

    @abstractmethod
    def writing(self, *, for_user: bool = False, claiming: bool = False) -> AbstractContextManager[Session]:
        """
        A write transaction: commits at the end, rolls back on an error.

        *for_user*: with user code in it, whose own errors are not touched. *claiming*: for the claim.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Session]:
        """A read transaction with one consistent view."""

    @abstractmethod
    def enlist(self, within: object) -> AbstractContextManager[Session]:
        """
        A session on the caller's open transaction, which it neither commits nor rolls back.

        Its `Session.place` says what decides which tables it finds, or is None where it was seen to be this database.
        """

    @abstractmethod
    def where(self) -> str:
        """Where the database is, for messages; without a password."""

    def end_transactions(self, process: str) -> bool:
        """
        End the open transactions of a process that is dead (`model.process`), where the server can be asked to.

        True if there were some. Only what its own stores have opened: nobody else's connections.
        """
        return False

    @abstractmethod
    def migrating(self) -> AbstractContextManager[Session]:
        """
        A write transaction that only one process in the world has at a time, without a deadline.

        It waits as long as it takes for another migration, but for a table that others use only a moment: then `LockTimeout`.
        """

    @abstractmethod
    def run_script(self, session: Session, script: str) -> None:
        """Run the statements of a migration script, as they stand."""

    def build_indexes(self, indexes: Sequence[Index]) -> None:  # noqa: B027 - most products have none
        """Build those of these that are missing while others write; what cannot be built is left to the next upgrade."""

    @abstractmethod
    def refuse(self, session: Session, refusal: Refusal) -> None:
        """Make a trigger that refuses a change, in a session of `migrating`; one of that name is replaced."""

    @abstractmethod
    def allow(self, session: Session, refusal: Refusal) -> None:
        """Remove the trigger of that name, if it is there."""

    @abstractmethod
    def past_fence(self, session: Session) -> AbstractContextManager[None]:
        """What the transaction of *session* does inside is let through by refusals that are passable; nobody else's is."""

    @abstractmethod
    def has_table(self, session: Session, name: str) -> bool:
        """True if the table exists where ours are looked for."""

    @abstractmethod
    def size(self, session: Session) -> StoreSize:
        """Rows and bytes of our tables, in what the product keeps about them."""

    @abstractmethod
    def coordinator(self) -> ClusterCoordinator | None:
        """What wakes the other processes on this database; None: there are none."""

    @abstractmethod
    def announce(self, session: Session) -> None:
        """Wake them when the caller's transaction of *session* commits, and not if it rolls back."""

    @abstractmethod
    def close(self) -> None:
        """Free every connection; the next transaction opens new ones."""
