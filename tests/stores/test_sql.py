import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from onebus.errors import AccessDenied, SchemaTooNew, StoreError, StoreFull, StoreUnavailable
from onebus.log.mark import Mark
from onebus.stores import create_store
from onebus.stores.base import Store, StoreOptions
from onebus.stores.sql.connection import Database
from onebus.stores.sql.dialects.sqlite import SqliteDialect
from onebus.stores.sql.migrations import Migration, migrate, migrations_of
from onebus.stores.sql.store import SqlStore
from tests.clock import FakeClock
from tests.conftest import running
from tests.messages import batch_of, numbered, texts_of
from tests.services import MariaDbServer, PostgresServer


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of two megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        assert os.environ.get("CI") != "true", mounted.stderr
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


async def test_a_full_disk_is_told_and_nothing_that_was_stored_is_lost(small_disk: Path) -> None:
    other_file = small_disk / "other"
    other_file.write_bytes(bytes(500_000))
    stored = 0

    async def fill(store: Store) -> None:
        nonlocal stored
        while True:
            stored = await store.append("log", batch_of("x" * 50_000))

    async with create_store(f"sqlite:///{small_disk}/bus.db") as store:
        with pytest.raises(StoreFull, match="Make room"):
            await fill(store)

        assert (await store.read("log", after=0)).last_id == stored > 0
        other_file.unlink()
        assert await store.append("log", batch_of("room again")) == stored + 1


async def test_a_reader_in_the_process_that_appends_is_handed_the_batch(tmp_path: Path) -> None:
    async with create_store(f"sqlite:///{tmp_path}/bus.db") as store, store.watch("log") as watch:
        await store.append("another", numbered(1))
        await store.append("log", numbered(1))
        epoch = (await store.read("log", after=0)).epoch
        watch.take_news(epoch, 0)

        await store.append("log", batch_of("x" * 100_000))

        assert watch.take_news(epoch, 1) == list((await store.read("log", after=1)).batches)


async def test_a_log_that_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    async with create_store(f"sqlite:///{tmp_path}/bus.db") as store:
        await store.append("log", batch_of("x"), mark=Mark("source", 1))
        await store.claim("log", limit=1, lease_seconds=30)

        await store.drop("log")

    with closing(sqlite3.connect(tmp_path / "bus.db")) as connection:
        for table in ("log", "batch", "hold", "mark"):
            assert connection.execute(f"SELECT count(*) FROM onebus_{table}").fetchone() == (0,), table


async def test_a_file_in_a_folder_that_does_not_exist_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="folder exists"):
        await create_store(f"sqlite:///{tmp_path}/nowhere/bus.db").open()


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, and they are longer than a header of a database file " * 20)

    with pytest.raises(StoreError, match="not an intact SQLite database"):
        await create_store(f"sqlite:///{path}").open()

    assert path.read_text().startswith("these are my notes")


async def test_a_file_locked_by_somebody_else_costs_a_call_its_deadline(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    async with create_store(f"sqlite:///{path}", StoreOptions(deadline_seconds=0.5)) as store:
        await store.append("log", numbered(1))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreUnavailable):
            await store.append("log", numbered(1))
        assert (await store.read("log", after=0)).last_id == 1

        other.execute("ROLLBACK")
        other.close()
        assert await store.append("log", numbered(1)) == 2


async def test_a_database_of_a_newer_onebus_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    async with create_store(url):
        pass
    with sqlite3.connect(tmp_path / "bus.db") as connection:
        connection.execute("INSERT INTO onebus_schema VALUES (99)")
    connection.close()

    with pytest.raises(SchemaTooNew, match="version 99"):
        await create_store(url).open()


def test_a_later_migration_runs_once_on_an_older_database(tmp_path: Path) -> None:
    dialect = SqliteDialect(make_url(f"sqlite:///{tmp_path}/bus.db"))
    first = migrations_of("sqlite")
    later = (*first, Migration(first[-1].version + 1, ("ALTER TABLE onebus_log ADD COLUMN colour TEXT",)))
    connection = Database(dialect.create_engine()).connect()
    migrate(connection, dialect, first)
    migrate(connection, dialect, later)
    migrate(connection, dialect, later)

    columns = [row[1] for row in connection.driver.execute("PRAGMA table_info(onebus_log)")]
    connection.close()
    assert "colour" in columns


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    dialect = SqliteDialect(make_url(f"sqlite:///{tmp_path}/bus.db"))
    broken = (Migration(1, ("CREATE TABLE a (x INTEGER)", "CREATE NONSENSE")),)
    connection = Database(dialect.create_engine()).connect()
    with pytest.raises(sqlite3.OperationalError, match="NONSENSE"):
        migrate(connection, dialect, broken)

    tables = connection.setting("SELECT count(*) FROM sqlite_master")
    connection.close()
    assert tables == 0


def test_every_database_has_the_same_migrations() -> None:
    versions = [[step.version for step in migrations_of(name)] for name in ("sqlite", "postgresql", "mysql")]

    assert versions[0] == versions[1] == versions[2] == list(range(1, len(versions[0]) + 1))


async def test_an_acknowledged_message_is_on_disk(tmp_path: Path) -> None:
    async with create_store(f"sqlite:///{tmp_path}/bus.db") as store:
        inspection = await store.inspect()

    assert any("synchronous=FULL" in finding.text for finding in inspection.findings)


async def test_many_callers_share_one_commit_and_each_has_its_own_outcome(tmp_path: Path) -> None:
    async with create_store(f"sqlite:///{tmp_path}/bus.db") as store:
        version = await store.put("record", {"a": b"1"})
        results = await asyncio.gather(
            *(store.append(f"log-{number % 5}", numbered(2)) for number in range(50)),
            store.put("record", {"a": b"2"}, expected=version + 7),
            store.put("record", {"a": b"3"}, expected=version),
            return_exceptions=True,
        )

        assert sorted(results[:50]) == sorted(list(range(1, 21, 2)) * 5)  # type: ignore[type-var]
        assert isinstance(results[50], Exception)
        assert results[51] == version + 1


async def test_what_has_expired_is_swept_from_the_tables(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqlStore(f"sqlite:///{tmp_path}/bus.db", StoreOptions(clock=clock))
    async with store:
        await store.touch("log", ttl_seconds=5, create=True)
        await store.append("log", numbered(3))
        await store.put("record", {"a": b"1"}, ttl_seconds=5)
        clock.advance(6)
        await store.sweep()

        with sqlite3.connect(tmp_path / "bus.db") as connection:
            counts = [
                connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("onebus_log", "onebus_batch", "onebus_record")
            ]
        connection.close()
    assert counts == [0, 0, 0]


async def test_a_wrong_password_is_told_without_showing_it() -> None:
    with running(PostgresServer(password="correct")) as server:
        url = server.url.replace("correct", "battery")
        with pytest.raises(AccessDenied) as caught:
            await create_store(url).open()

        assert "battery" not in str(caught.value)
        async with create_store(server.url) as store:
            await store.append("log", numbered(1))


async def test_a_wrong_mysql_password_is_told_without_showing_it(mariadb: MariaDbServer) -> None:
    url = mariadb.url.replace("secret", "battery")

    with pytest.raises(AccessDenied) as caught:
        await create_store(url).open()

    assert "battery" not in str(caught.value)


async def test_a_database_that_does_not_exist_is_told_with_the_remedy(
    postgres: PostgresServer, mariadb: MariaDbServer
) -> None:
    for server in (postgres, mariadb):
        with pytest.raises((StoreUnavailable, AccessDenied)):
            await create_store(server.url.rpartition("/")[0] + "/nowhere").open()


async def test_two_clients_of_one_file_with_a_very_long_path_wake_each_other(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    url = f"sqlite:///{folder}/bus.db"
    async with create_store(url) as store, create_store(url) as other, other.watch("log") as watch:
        await store.append("log", batch_of("x"))

        assert await watch.wait(10)
        assert texts_of(await other.read("log", after=0)) == ["x"]


async def test_a_dead_process_leaves_no_bell_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    bells = tmp_path / "bus.db-bells"
    async with create_store(url) as store, store.watch("log"):
        (bells / "dead.sock").touch()
        await store.append("log", numbered(1))

        assert len(list(bells.iterdir())) == 1
    assert list(bells.iterdir()) == []


@pytest.mark.xdist_group("postgres")
async def test_watches_that_begin_at_once_share_one_listening_connection(postgres: PostgresServer) -> None:
    async with create_store(postgres.url) as store, AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(store.watch(f"log-{number}")) for number in range(5)))

    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "onebus-listen"] == []


async def test_in_sqlite_what_is_transferred_is_not_written_again(tmp_path: Path) -> None:
    file, blob = tmp_path / "bus.db", batch_of("x" * 1_000_000)
    async with create_store(f"sqlite:///{file}") as store:
        for number in range(300):
            # Then ids of logs and of messages take two bytes, all but those of the first logs.
            await store.append(f"log-{number}", numbered(1000))
        for log in ("log-3", "log-299"):
            staging = await store.stage(log, ttl_seconds=60)
            last_ids = [await store.append(staging, blob, durable=False) for _ in range(4)]
            with closing(sqlite3.connect(file)) as other:
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")

            await store.transfer(staging, log, last_ids)

            assert file.with_name("bus.db-wal").stat().st_size < 500_000
            found = await store.read(log, after=1000, max_bytes=100_000_000)
            assert texts_of(found, after=1000) == ["x" * 1_000_000] * 4
