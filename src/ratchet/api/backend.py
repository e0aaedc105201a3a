"""What builders, handles and facades need of the scheduler that made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from ratchet.model.audit import AuditSource
from ratchet.model.cluster import KeyLimit
from ratchet.model.composition import ScheduleSpec
from ratchet.model.decision import CanceledJob
from ratchet.model.events import Event
from ratchet.model.identifiers import IdSource
from ratchet.model.job import JobFilter, JobResultRow, JobSpec
from ratchet.model.masking import Masking
from ratchet.model.options import Options
from ratchet.model.permissions import Permission
from ratchet.model.status import Priority
from ratchet.spi.authorizer import Authorizer
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.store import JobStore, SendingStore
from ratchet.spi.surrounding_transaction import SurroundingTransaction
from ratchet.spi.tracer import Tracer

if TYPE_CHECKING:
    from ratchet.api.submit.quotas import Quotas


class Actor(NamedTuple):
    """Who acts, and through what."""

    name: str | None
    source: AuditSource


class ScopedAuthorizer(Authorizer, Protocol):
    """An `Authorizer` that never raises, and always has a scope."""

    def scope(self, principal: str | None, permission: Permission) -> JobFilter | None:
        """The jobs for which it says yes; None: it has to be asked about each."""
        ...


class Backend(Protocol):
    """
    A scheduler as builders, handles and facades see it.

    Whatever user code holds reaches the store, the clock and the running node through this alone.
    """

    @property
    def store(self) -> JobStore:
        """The store, opened and with its schema checked."""
        ...

    @property
    def sending(self) -> SendingStore | None:
        """The store, if a job can be sent to it now without waiting; else None."""
        ...

    @property
    def surrounding(self) -> SurroundingTransaction | None:
        """Finds the framework's transaction around the caller; None: there is no such framework."""
        ...

    @property
    def tracer(self) -> Tracer | None:
        """Who follows what is submitted; None: nobody."""
        ...

    @property
    def options(self) -> Options:
        """The options in force."""
        ...

    @property
    def targets(self) -> InvocationResolver:
        """Names targets and finds them again."""
        ...

    @property
    def driven_by_hand(self) -> bool:
        """True if jobs run when the caller says so: then it does not matter which nodes are alive."""
        ...

    @property
    def ids(self) -> IdSource:
        """Makes job ids."""
        ...

    @property
    def masking(self) -> Masking | None:
        """What people do not see of the jobs of any target; None: what each job says."""
        ...

    def has_keys(self, keys: Iterable[str]) -> bool:
        """True if values of all these keys can be read here."""
        ...

    def now(self) -> datetime:
        """The engine's time."""
        ...

    @property
    def authorizer(self) -> ScopedAuthorizer | None:
        """Says who may do what; None: everything is permitted."""
        ...

    @property
    def quotas(self) -> Quotas | None:
        """How much may be submitted; None: there are no quotas."""
        ...

    def actor(self) -> Actor:
        """Who the calling code acts for, and through what."""
        ...

    def caller(self) -> str | None:
        """On whose behalf the calling code submits."""
        ...

    def allow_type(self, module: str, qualname: str) -> bool:
        """True if a stored value of this class may be restored here."""
        ...

    def sanitized(self, text: str) -> str:
        """*text* without secrets, as it may be stored."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point."""
        ...

    def rest(self, seconds: float) -> None:
        """Wait before a submission is sent again."""
        ...

    def wait_for(
        self, job_id: UUID, timeout: float | None, *, uncommitted: bool = False
    ) -> JobResultRow | None:
        """
        The row of a job once it has ended; None if it has not after *timeout* seconds, `JobNotFound` if it is gone.

        An *uncommitted* job that was never seen is not gone: the transaction it was submitted in may be open.
        """
        ...

    async def await_end(
        self, job_id: UUID, timeout: float | None, *, uncommitted: bool = False
    ) -> JobResultRow | None:
        """The same, and it blocks neither the event loop nor a thread."""
        ...

    def submitted(self, specs: Sequence[JobSpec], *, due: bool, priority: Priority) -> None:
        """Jobs were committed; if one is *due*, pollers here and elsewhere are woken."""
        ...

    def ensure_limit(self, name: str, limit: KeyLimit, *, joined: bool) -> None:
        """
        Store the limit of a concurrency key or a rate key, if this process has not done so within the last hour.

        *joined*: the submission joins the caller's transaction. A store with one writer must have the
        limit already then.
        """
        ...

    def canceled(self, jobs: Sequence[CanceledJob]) -> None:
        """Jobs were canceled: stop runs in this process (others learn of it with their beat) and tell waiters."""
        ...

    def fire_times(self, spec: ScheduleSpec, after: datetime, anchor: datetime) -> Iterator[datetime]:
        """The fire times of a schedule after *after*; `InvalidJob` if its expression or zone is invalid."""
        ...

    def run_of(self, spec: ScheduleSpec, fire_at: datetime) -> JobSpec:
        """The job that one fire time of a schedule becomes."""
        ...

    def hears(self, event: type[Event]) -> bool:
        """True if somebody listens for *event*; if not, none needs to be made."""
        ...

    def publish(self, event: Event) -> None:
        """Tell the listeners of this process."""
        ...
