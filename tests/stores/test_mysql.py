"""MySQL and MariaDB: appends in one round trip, and datagrams that may be forged."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

import pymysql
import pytest
from sqlalchemy import make_url

from onebus.errors import StoreError
from onebus.log.stored import StoredBatch
from onebus.stores import create_store
from onebus.stores.base import Store, StoreOptions
from onebus.stores.news import News
from onebus.stores.sql.bells.udp import MAX_DATAGRAM_BYTES, seal
from onebus.stores.sql.store import SqlStore
from onebus.stores.switchboard import Watch
from tests.clock import FakeClock
from tests.conftest import running
from tests.messages import batch_of, numbered, texts_of
from tests.services import MariaDbServer


@pytest.fixture
def log() -> str:
    return f"log:{uuid4().hex}"


@contextmanager
def connected(server: MariaDbServer) -> Iterator[Any]:
    """Somebody else who uses the database."""
    url = make_url(server.url)
    connection = pymysql.connect(
        host=url.host, port=url.port or 0, user=url.username, password=url.password or "", database=url.database
    )
    with closing(connection), connection.cursor() as cursor:
        connection.autocommit(True)
        yield cursor


@pytest.fixture
def cursor(mariadb: MariaDbServer) -> Iterator[Any]:
    with connected(mariadb) as cursor:
        yield cursor


async def watched(store: Store, log: str, watch: Watch) -> StoredBatch:
    """Append a message, and return its batch when the watch has told everything about it."""
    first_id = await store.append(log, batch_of("first"))
    assert await watch.wait(10)
    found = await store.read(log, after=first_id - 1)
    watch.take_news(found.epoch, first_id)
    return found.batches[0]


Bell = tuple[tuple[str, int], bytes]
"""Where a store listens, and the secret that makes it believe what it hears."""


@pytest.fixture
def own_bell(cursor: Any) -> Callable[[], Bell]:
    """Returns the bell of the one store that was opened since the test began; others may have left theirs behind."""

    def bells() -> dict[str, bytes]:
        cursor.execute("SELECT address, secret FROM onebus_bell")
        return dict(cursor.fetchall())

    cursor.execute("SHOW TABLES LIKE 'onebus_bell'")
    known = bells() if cursor.fetchall() else {}

    def find() -> Bell:
        ((address, secret),) = bells().items() - known.items()
        host, _, port = address.rpartition(":")
        return (host, int(port)), secret

    return find


def send(address: tuple[str, int], datagram: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        mouth.sendto(datagram, address)


async def test_a_small_batch_travels_along_with_the_wake_up(mariadb: MariaDbServer, log: str) -> None:
    async with create_store(mariadb.url) as store, create_store(mariadb.url) as other, other.watch(log) as watch:
        await watched(store, log, watch)

        await store.append(log, batch_of("a", "b"))

        assert await watch.wait(10)
        found = await other.read(log, after=1)
        assert watch.take_news(found.epoch, 1) == list(found.batches)
        assert texts_of(found, after=1) == ["a", "b"]


async def test_a_batch_that_no_datagram_carries_is_fetched(mariadb: MariaDbServer, log: str) -> None:
    async with create_store(mariadb.url) as store, create_store(mariadb.url) as other, other.watch(log) as watch:
        await watched(store, log, watch)
        noise = os.urandom(MAX_DATAGRAM_BYTES // 2).hex()

        await store.append(log, batch_of(noise))

        assert await watch.wait(10)
        found = await other.read(log, after=1)
        assert watch.take_news(found.epoch, 1) is None
        assert texts_of(found, after=1) == [noise]


async def test_a_forged_datagram_wakes_a_reader_and_brings_it_nothing(
    mariadb: MariaDbServer, log: str, own_bell: Callable[[], Bell]
) -> None:
    async with create_store(mariadb.url) as store, store.watch(log) as watch:
        await watched(store, log, watch)
        epoch = (await store.read(log, after=0)).epoch
        address, secret = own_bell()
        packed = News(epoch, StoredBatch(2, 1, batch_of("forged"), 1)).pack()
        assert packed
        tiding = log.encode() + b"\n" + packed
        genuine = seal(tiding, secret)

        for forged in (seal(tiding, b"a guess"), genuine[:-1] + b"?", b"\0" * 17 + tiding, tiding):
            send(address, forged)

            assert await watch.wait(10)
            assert watch.take_news(epoch, 1) is None

        send(address, genuine)
        assert await watch.wait(10)
        assert watch.take_news(epoch, 1) == [StoredBatch(2, 1, batch_of("forged"), 1)]


async def test_a_datagram_that_is_sent_again_delivers_nothing_again(
    mariadb: MariaDbServer, log: str, own_bell: Callable[[], Bell]
) -> None:
    async with create_store(mariadb.url) as store, store.watch(log) as watch:
        batch = await watched(store, log, watch)
        epoch = (await store.read(log, after=0)).epoch
        address, secret = own_bell()

        packed = News(epoch, batch).pack()
        assert packed
        send(address, seal(log.encode() + b"\n" + packed, secret))

        assert await watch.wait(10)
        assert watch.take_news(epoch, 1) == []


async def test_nonsense_in_a_datagram_harms_nobody(
    mariadb: MariaDbServer, log: str, own_bell: Callable[[], Bell]
) -> None:
    async with create_store(mariadb.url) as store, store.watch(log) as watch:
        await watched(store, log, watch)
        address, _ = own_bell()

        for nonsense in (b"", b"\0", b"\0" * 30, b"\xff\n\xfe", b"\n" * 9):
            send(address, nonsense)

        await store.append(log, batch_of("next"))
        assert await watch.wait(10)
        assert texts_of(await store.read(log, after=1), after=1) == ["next"]


@pytest.mark.parametrize("tls", [False, True])
async def test_a_message_leaves_the_machine_only_if_the_connection_is_not_encrypted_either(tls: bool, log: str) -> None:
    with running(MariaDbServer(tls=tls)) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far_away:
        far_away.bind(("127.0.0.2", 0))
        far_away.settimeout(10)
        async with create_store(server.url) as store:
            await store.append(log, batch_of("first"))
            with connected(server) as cursor:
                address = "127.0.0.2:{1}".format(*far_away.getsockname())
                cursor.execute("INSERT INTO onebus_bell VALUES (%s, 'secret', %s)", (address, 2**60))

            await store.append(log, batch_of("a secret message"))

        datagram = far_away.recv(2000)
        assert log.encode() in datagram
        assert (b"a secret message" in datagram) is not tls


async def test_an_append_whose_second_statement_fails_stores_nothing(
    mariadb: MariaDbServer, log: str, cursor: Any
) -> None:
    async with create_store(mariadb.url) as store:
        await store.append(log, numbered(3))
        before = await store.stat(log)
        cursor.execute("SELECT id FROM onebus_log WHERE name = %s", (log,))
        ((log_id,),) = cursor.fetchall()
        # The place of the next batch is taken, as it would never be.
        cursor.execute("INSERT INTO onebus_batch VALUES (%s, 5, 1, 0, 0, 0, NULL, NULL, '')", (log_id,))

        with pytest.raises(StoreError, match="Duplicate"):
            await store.append(log, numbered(2))

        cursor.execute("DELETE FROM onebus_batch WHERE log_id = %s AND last_id = 5", (log_id,))
        assert await store.stat(log) == before
        assert await store.append(log, numbered(2)) == 4
        assert texts_of(await store.read(log, after=0)) == ["1", "2", "3", "1", "2"]


async def test_an_append_waits_for_whoever_has_locked_the_log(mariadb: MariaDbServer, log: str, cursor: Any) -> None:
    async with create_store(mariadb.url) as store:
        await store.append(log, numbered(1))
        cursor.connection.begin()
        cursor.execute("UPDATE onebus_log SET last_id = 7 WHERE name = %s", (log,))
        append = asyncio.create_task(store.append(log, numbered(1)))
        done, _ = await asyncio.wait({append}, timeout=0.3)
        assert not done

        cursor.connection.rollback()

        assert await append == 2


async def test_who_knew_an_earlier_life_of_a_log_appends_to_the_present_one(mariadb: MariaDbServer, log: str) -> None:
    async with create_store(mariadb.url) as store, create_store(mariadb.url) as other:
        await store.append(log, batch_of("old"))
        await store.append(log, batch_of("old"))
        await other.drop(log)
        await other.append(log, batch_of("by the other"))

        assert await store.append(log, batch_of("new")) == 2
        assert await store.append(log, batch_of("newer")) == 3
        assert texts_of(await other.read(log, after=0)) == ["by the other", "new", "newer"]


async def test_an_expired_log_begins_anew(mariadb: MariaDbServer, log: str) -> None:
    clock = FakeClock()
    async with SqlStore(mariadb.url, StoreOptions(clock=clock)) as store:
        await store.touch(log, ttl_seconds=5, create=True)
        await store.append(log, batch_of("a"))
        clock.advance(4)
        assert await store.append(log, batch_of("b")) == 2
        clock.advance(4)
        assert await store.append(log, batch_of("c")) == 3
        clock.advance(6)

        assert await store.append(log, batch_of("d")) == 1
        assert texts_of(await store.read(log, after=0)) == ["d"]


async def test_what_looks_like_a_statement_is_only_a_name(mariadb: MariaDbServer, log: str) -> None:
    name = f"{log}'; DROP TABLE onebus_log; -- \\' %s %(batch)s"
    async with create_store(mariadb.url) as store:
        for number in (1, 2, 3):
            assert await store.append(name, batch_of(name)) == number

        assert texts_of(await store.read(name, after=0)) == [name] * 3


async def test_the_clock_of_the_server_counts_milliseconds(mariadb: MariaDbServer, log: str) -> None:
    async with create_store(mariadb.url) as store:
        for _ in range(5):
            await store.append(log, numbered(1))

        assert any(batch.appended_ms % 1000 for batch in (await store.read(log, after=0)).batches)
