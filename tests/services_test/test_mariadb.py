from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pymysql

from tests.services.mariadb import MariaDB


def connect(url: str) -> pymysql.connections.Connection[Any]:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username, database=parts.path[1:]
    )


def test_skips_locked_rows(mysql_url: str) -> None:
    """The shared server has what the store is built on: InnoDB, SKIP LOCKED and four-byte characters."""
    with connect(mysql_url) as one, connect(mysql_url) as two:
        with one.cursor() as cursor:
            cursor.execute("CREATE TABLE queue (id INT PRIMARY KEY, name TEXT) ENGINE=InnoDB")
            cursor.execute("INSERT INTO queue VALUES (1, '🔧'), (2, 'b')")
            one.commit()
            cursor.execute("SELECT name FROM queue WHERE id = 1 FOR UPDATE")
            assert cursor.fetchall() == (("🔧",),)
        with two.cursor() as cursor:
            cursor.execute("SELECT id FROM queue ORDER BY id FOR UPDATE SKIP LOCKED")
            assert cursor.fetchall() == ((2,),)


def test_keeps_its_data_through_restart_and_kill() -> None:
    """What was committed is there after an orderly restart, and after SIGKILL and recovery."""
    with MariaDB() as server:
        url = server.create_database()
        with connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        for interrupt in (server.restart, server.kill):
            interrupt()
            server.start()
            with connect(url) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT answer FROM kept")
                assert cursor.fetchone() == (42,)


def test_drops_a_database_that_is_in_use(mariadb_server: MariaDB) -> None:
    """A session left open in a transaction does not hold up the end of a test."""
    url = mariadb_server.create_database()
    connection = connect(url)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE held (id INT)")
        cursor.execute("SELECT * FROM held")
    mariadb_server.drop_database(url)
    connection.close()
