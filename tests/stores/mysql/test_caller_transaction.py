"""`within=` on MySQL: our statements on the caller's PyMySQL or SQLAlchemy transaction, whatever its settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT
from pymysql.converters import encoders
from pymysql.cursors import DictCursor, SSCursor
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session as OrmSession

from ratchet.model.decision import Succeed
from ratchet.model.errors import ConfigurationError, Conflict, StoreError, UnstorableData
from ratchet.model.status import Busy, JobStatus
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.store import open_store
from tests.stores.mysql_server import ask as run
from tests.stores.mysql_server import connect as driver_connection
from tests.stores.sql_stores import SqlSteps

ADD = "INSERT INTO scheduler_queue (queue, paused, paused_at) VALUES (:queue, true, :at)"
LIST = "SELECT queue, paused, paused_at FROM scheduler_queue ORDER BY queue"
AT = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)


class Refused(Exception):
    pass


@pytest.fixture
def steps(mysql_url: str) -> Iterator[SqlSteps]:
    steps = SqlSteps(mysql_url)
    yield steps
    steps.close()


@pytest.fixture
def connect(mysql_url: str) -> Iterator[Callable[..., Any]]:
    """Makes driver's own connections, as an application would have them."""
    made: list[Any] = []

    def connect(**options: Any) -> Any:
        made.append(driver_connection(mysql_url, **options))
        return made[-1]

    yield connect
    for connection in made:
        if connection.open:
            connection.close()


def add(queue: str) -> Callable[[Session], list[Any]]:
    def work(session: Session) -> list[Any]:
        assert session.enlisted
        session.execute(ADD, {"queue": queue, "at": AT})
        return session.rows(LIST)

    return work


def refuse(session: Session) -> None:
    add("half")(session)
    raise Refused


def queues(steps: SqlSteps) -> list[str]:
    return [row[0] for row in steps.sql(LIST)]


class TestDriverConnection:
    def test_commit_and_rollback_are_the_caller_s(self, steps: SqlSteps, connect: Callable[..., Any]) -> None:
        """Seen inside, invisible outside until the caller commits; gone when the caller rolls back."""
        connection, database = connect(), steps.store.database
        assert database.run(add("a"), within=connection) == [("a", True, AT)]
        assert queues(steps) == []
        connection.rollback()
        database.run(add("b"), within=connection)
        with pytest.raises(Refused):
            database.run(refuse, within=connection)
        with pytest.raises(StoreError):
            database.run(
                lambda session: session.execute("INSERT INTO scheduler_queue (no) VALUES (1)"),
                within=connection,
            )
        connection.commit()
        assert queues(steps) == ["b"]

    def test_begin_yields_a_connection_that_is_accepted(self, steps: SqlSteps) -> None:
        """The user's statements and ours commit together, blocks inside blocks join it, or nothing happens."""
        with steps.store.begin() as connection:
            run(connection, "INSERT INTO scheduler_queue (queue) VALUES ('mine')")
            with steps.store.begin(within=connection) as same:
                assert same is connection
                steps.store.database.run(add("ours"), within=same)
                with pytest.raises(Refused):
                    steps.store.database.run(refuse, within=same)
        assert queues(steps) == ["mine", "ours"]

    @pytest.mark.parametrize("how", ["COMMIT", "ROLLBACK", "CREATE TABLE users_own (a INT)"])
    def test_ending_the_transaction_inside_its_block_is_an_error(self, steps: SqlSteps, how: str) -> None:
        """Half of it would stand when the rest fails, so it does not pass unnoticed; DDL commits here."""
        with pytest.raises(StoreError, match="inside its block"):
            with steps.store.begin() as connection:
                run(connection, how)

        def go_on() -> None:
            with steps.store.begin() as connection:
                run(connection, how.replace("CREATE TABLE", "DROP TABLE").partition(" (")[0])
                steps.store.database.run(add("a"), within=connection)

        with pytest.raises(ConfigurationError, match="autocommit"):
            go_on()

    def test_autocommit_is_refused(self, steps: SqlSteps, connect: Callable[..., Any]) -> None:
        """Each statement would commit by itself; after BEGIN it is welcome."""
        connection = connect(autocommit=True)
        with pytest.raises(ConfigurationError, match="autocommit"):
            steps.store.database.run(add("a"), within=connection)
        connection.begin()
        steps.store.database.run(add("a"), within=connection)
        connection.commit()
        assert queues(steps) == ["a"]

    def test_cursors_and_converters_of_the_caller(self, steps: SqlSteps, connect: Callable[..., Any]) -> None:
        """What the caller has registered changes neither our rows nor does it stay changed."""
        connection = connect(cursorclass=DictCursor, conv=encoders)
        assert steps.store.database.run(add("a"), within=connection) == [("a", True, AT)]
        assert run(connection, "SELECT paused FROM scheduler_queue") == [{"paused": "1"}]
        connection = connect(cursorclass=SSCursor)
        assert steps.store.database.run(add("b"), within=connection) == [("b", True, AT)]

    def test_settings_of_the_caller_s_session_stay(
        self, steps: SqlSteps, connect: Callable[..., Any]
    ) -> None:
        """The lock timeout and the strict mode that we need are gone again afterwards, also after an error."""
        connection = connect()
        settings = "SELECT @@innodb_lock_wait_timeout, @@sql_mode, @@time_zone"
        run(
            connection,
            "SET SESSION innodb_lock_wait_timeout = 77, sql_mode = 'ANSI_QUOTES', time_zone = '+05:00'",
        )
        before = run(connection, settings)
        assert steps.store.database.run(add("a"), within=connection) == [("a", True, AT)]
        with pytest.raises(Refused):
            steps.store.database.run(refuse, within=connection)
        with pytest.raises(UnstorableData):
            steps.store.database.run(add("x" * 300), within=connection)
        assert run(connection, settings) == before

    @pytest.mark.parametrize(
        "mode", ["NO_BACKSLASH_ESCAPES", "", "PIPES_AS_CONCAT,ANSI_QUOTES,STRICT_ALL_TABLES"]
    )
    def test_no_quoting_is_mistaken(self, steps: SqlSteps, connect: Callable[..., Any], mode: str) -> None:
        """Quotes and backslashes come back as they were, however the caller's session reads them."""
        connection = connect(sql_mode=mode)
        nasty = "a'b\"c\\d\\'e\\\\'%s%(x)s`--;"
        specs = [steps.spec(business_key=nasty, idempotency_key=nasty, tags=(nasty,))]
        steps.store.insert(specs, now=steps.now, within=connection)
        connection.commit()
        job = steps.record(specs[0].job_id)
        assert (job.business_key, job.idempotency_key, job.tags) == (nasty, nasty, (nasty,))

    def test_another_database_is_refused(self, steps: SqlSteps, connect: Callable[..., Any]) -> None:
        """The tables of another database are not ours, and the message names both."""
        with pytest.raises(ConfigurationError, match=r"database mysql, but this store is in"):
            steps.store.database.run(add("a"), within=connect(database="mysql"))

    def test_another_character_set_is_refused(self, steps: SqlSteps, connect: Callable[..., Any]) -> None:
        """It could not hold every text."""
        with pytest.raises(ConfigurationError, match="utf8mb4"):
            steps.store.database.run(add("a"), within=connect(charset="latin1"))

    def test_strangers_are_refused(self, steps: SqlSteps) -> None:
        """Anything else is named in the message, with what is accepted."""
        with pytest.raises(ConfigurationError, match=r"pass a connection of PyMySQL or mysqlclient"):
            steps.store.database.run(add("a"), within=object())

    def test_a_deadlock_takes_the_whole_transaction(
        self, steps: SqlSteps, connect: Callable[..., Any]
    ) -> None:
        """The server has rolled back the caller's transaction, and the error says so."""
        for queue in ("a", "b"):
            steps.store.pause_queue(queue, now=AT)
        lock = "UPDATE scheduler_queue SET paused_at = NULL WHERE queue = '{}'"
        connection, rival = connect(), connect()
        run(connection, lock.format("a"))
        run(rival, lock.format("b"))
        run(rival, "UPDATE scheduler_queue SET paused = false WHERE queue = 'b'")  # has more to lose
        errors: list[BaseException] = []
        waiting = threading.Thread(target=lambda: run_and_keep(rival, lock.format("a"), errors))
        waiting.start()
        try:
            try:
                steps.store.database.run(lambda session: session.execute(lock.format("b")), within=connection)
            except Conflict as error:
                errors.append(error)
        finally:
            connection.rollback()
            waiting.join(20)
        (problem,) = errors
        if isinstance(problem, Conflict):
            assert "rolled back the whole transaction" in str(problem)
        else:
            assert problem.args[0] == 1213


def run_and_keep(connection: Any, statement: str, errors: list[BaseException]) -> None:
    try:
        run(connection, statement)
    except pymysql.Error as error:
        errors.append(error)


@pytest.mark.parametrize("flags", [0, CLIENT.FOUND_ROWS], ids=["changed", "found"])
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
class TestSnapshots:
    """A caller's transaction that has its snapshot already, on connections that count rows either way."""

    @pytest.fixture
    def caller(self, steps: SqlSteps, connect: Callable[..., Any], flags: int, level: str) -> Any:
        connection = connect(client_flag=flags)
        run(connection, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        run(connection, "SELECT count(*) FROM scheduler_queue")
        return connection

    def test_originals_that_were_stored_since(self, steps: SqlSteps, caller: Any) -> None:
        """A duplicate names the job that was committed after the snapshot, by either key; mixed ones too."""
        original = steps.submit(idempotency_key="i", business_key="b")
        (again,) = steps.store.insert([steps.spec(idempotency_key="i")], now=steps.now, within=caller)
        (held,) = steps.store.insert(
            [steps.spec(business_key="b", busy=Busy.RETURN)], now=steps.now, within=caller
        )
        specs = [steps.spec(idempotency_key=key) for key in ("i", "new", "other")]
        mixed = steps.store.insert(specs, now=steps.now, within=caller)
        assert (again.job_id, held.job_id) == (original, original)
        assert [(one.job_id, one.created) for one in mixed] == [
            (original, False),
            (specs[1].job_id, True),
            (specs[2].job_id, True),
        ]
        caller.commit()
        assert steps.store.counts()[JobStatus.PENDING] == 3

    def test_dependants_that_were_added_since(self, steps: SqlSteps, caller: Any) -> None:
        """A completion releases a child that was submitted after the snapshot, and whose other parent has ended since."""
        parent, other = steps.spec(), steps.spec()
        steps.insert([parent, other])
        claim = steps.claim_job(parent.job_id)
        run(caller, "SELECT count(*) FROM scheduler_dependency")
        child = steps.child(needs=2)
        steps.insert([child], [steps.edge(parent, child), steps.edge(other, child)])
        steps.end(steps.claim_job(other.job_id))
        (answer,) = steps.store.complete(
            [steps.completion(claim, Succeed(result="1"))], now=steps.now, within=caller
        )
        assert (answer.won, answer.released) == (True, (child.job_id,))
        caller.commit()
        assert steps.status(child.job_id) is JobStatus.PENDING

    def test_a_claim_that_was_lost_since(self, steps: SqlSteps, caller: Any) -> None:
        """The fence is compared with what is true now, not with what was true at the snapshot."""
        claim = steps.running()
        run(caller, "SELECT count(*) FROM scheduler_job_queue")
        steps.store.cancel(claim.job_id, reason="r", now=steps.now)
        (answer,) = steps.store.complete([steps.completion(claim)], now=steps.now, within=caller)
        assert not answer.won
        caller.commit()
        assert steps.status(claim.job_id) is JobStatus.CANCELED

    def test_a_new_queue(self, steps: SqlSteps, caller: Any) -> None:
        """A stream that is made on the way, on another connection, is known inside."""
        (job,) = steps.store.insert([steps.spec(queue="brand-new")], now=steps.now, within=caller)
        caller.commit()
        assert steps.record(job.job_id).stream.queue == "brand-new"


class TestSqlalchemy:
    @pytest.fixture
    def engine(self, mysql_url: str) -> Iterator[Any]:
        engine = create_engine(mysql_url.replace("mysql:", "mysql+pymysql:"))
        yield engine
        engine.dispose()

    def test_session(self, steps: SqlSteps, engine: Any) -> None:
        """An ORM session's commit commits our rows; its rollback undoes them."""
        with OrmSession(engine) as session:
            assert steps.store.database.run(add("a"), within=session) == [("a", True, AT)]
            session.rollback()
            assert queues(steps) == []
            session.execute(text("INSERT INTO scheduler_queue (queue) VALUES ('mine')"))
            steps.store.database.run(add("b"), within=session)
            session.commit()
        assert queues(steps) == ["b", "mine"]

    def test_connection(self, steps: SqlSteps, engine: Any) -> None:
        """Its commit() commits, even where our statement was the first one on it."""
        with engine.connect() as connection:
            steps.store.database.run(add("a"), within=connection)
            connection.commit()
            steps.store.database.run(add("b"), within=connection)
        with engine.begin() as connection:
            steps.store.database.run(add("c"), within=connection)
        assert queues(steps) == ["a", "c"]

    def test_keys_are_told_apart(self, steps: SqlSteps, engine: Any) -> None:
        """SQLAlchemy's connections count found rows; what is new and what is not is known all the same."""
        original = steps.submit(idempotency_key="i")
        with engine.begin() as connection:
            specs = [steps.spec(idempotency_key=key, business_key=key) for key in ("i", "new")]
            answers = steps.store.insert(specs, now=steps.now, within=connection)
        assert [(one.job_id, one.created) for one in answers] == [(original, False), (specs[1].job_id, True)]

    def test_autocommit_is_refused(self, steps: SqlSteps, engine: Any) -> None:
        """SQLAlchemy's AUTOCOMMIT is the driver's."""
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            with pytest.raises(ConfigurationError, match="autocommit"):
                steps.store.database.run(add("a"), within=connection)

    def test_the_url_of_sqlalchemy_opens_the_store(self, steps: SqlSteps, engine: Any) -> None:
        """One URL for both."""
        store = open_store(engine.url.render_as_string(hide_password=False))
        store.check_schema()
        store.close()
