import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from onebus.cli.examination import examine
from onebus.stores import create_store
from tests.cli.command import onebus
from tests.conftest import running
from tests.eventually import eventually
from tests.services import MariaDbServer, PostgresServer, RedisServer
from tests.services.port import free_port

PASSWORD = "correct-horse"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bus.db"


@pytest.fixture(scope="module")
def careless_postgres() -> Iterator[PostgresServer]:
    """A server that asks for a password and does not care for its disk."""
    with running(PostgresServer(settings={"fsync": "off"}, password=PASSWORD)) as server:
        yield server


@pytest.fixture(scope="module")
def durable_redis() -> Iterator[RedisServer]:
    with running(RedisServer(append_only=True, password=PASSWORD)) as server:
        yield server


def assert_healthy(url: str, product: str) -> None:
    done = onebus("doctor", url)

    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    assert product in done.stdout
    assert "good  durability" in done.stdout
    assert "append        p50" in done.stdout
    assert "reader woken  p50" in done.stdout
    assert "to change     nothing" in done.stdout


def test_it_finds_sqlite_healthy(sqlite_url: str) -> None:
    assert_healthy(sqlite_url, "SQLite")


@pytest.mark.xdist_group("postgres")
def test_it_finds_postgres_healthy(postgres: PostgresServer) -> None:
    assert_healthy(postgres.url, "PostgreSQL")


@pytest.mark.xdist_group("mariadb")
def test_it_finds_mariadb_healthy(mariadb: MariaDbServer) -> None:
    assert_healthy(mariadb.url, "MariaDB")


@pytest.mark.xdist_group("redis")
def test_it_finds_a_redis_that_writes_to_its_disk_healthy(durable_redis: RedisServer) -> None:
    assert_healthy(durable_redis.url, "Redis")


@pytest.mark.xdist_group("redis")
def test_it_finds_a_redis_without_a_journal_bad(redis: RedisServer) -> None:
    done = onebus("doctor", redis.url)

    assert done.returncode == 1
    assert "bad   durability" in done.stdout
    assert "appendonly" in done.stdout


@pytest.mark.xdist_group("postgres")
def test_a_bad_setting_is_named_with_its_remedy(careless_postgres: PostgresServer) -> None:
    done = onebus("doctor", careless_postgres.url)

    assert done.returncode == 1
    assert "bad   durability" in done.stdout
    assert "Set fsync=on" in done.stdout
    assert PASSWORD not in done.stdout


@pytest.mark.xdist_group("postgres")
def test_a_wrong_password_is_told_and_not_shown(careless_postgres: PostgresServer) -> None:
    done = onebus("doctor", careless_postgres.url.replace(PASSWORD, "wrong-horse"))

    assert done.returncode == 1
    assert done.stderr.startswith("error[access_denied]: ")
    assert "horse" not in done.stdout + done.stderr


@pytest.mark.parametrize(("scheme", "database"), [("postgresql", "onebus"), ("mysql", "onebus"), ("redis", "0")])
def test_a_dead_server_is_one_clear_line(scheme: str, database: str) -> None:
    done = onebus("doctor", f"{scheme}://onebus:{PASSWORD}@127.0.0.1:{free_port()}/{database}")

    assert done.returncode == 1
    assert done.stderr.startswith("error[store_unavailable]: ")
    assert done.stderr.count("\n") == 1
    assert PASSWORD not in done.stdout + done.stderr


def test_an_unknown_scheme_is_told_with_the_known_ones() -> None:
    done = onebus("doctor", "carrier+pigeon://roof")

    assert done.returncode == 1
    assert done.stderr.startswith("error[unknown_scheme]: ")
    assert "sqlite://" in done.stderr


def test_json_is_one_object(sqlite_url: str) -> None:
    done = onebus("doctor", "--json", sqlite_url)

    report = json.loads(done.stdout)
    examination = report["stores"][0]["examination"]
    assert (done.returncode, report["healthy"], report["stores"][0]["url"]) == (0, True, sqlite_url)
    assert examination["product"] == "SQLite"
    assert {"topic", "text", "verdict", "remedy"} == set(examination["findings"][0])
    assert 0 < examination["append"]["p50_ms"] <= examination["append"]["p99_ms"]
    assert 0 < examination["wake_up"]["p50_ms"] <= examination["wake_up"]["p99_ms"]


def test_json_tells_errors_by_their_code() -> None:
    done = onebus("doctor", "--json", "carrier+pigeon://roof")

    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr, report["healthy"]) == (1, "", False)
    assert report["stores"][0]["error"]["code"] == "unknown_scheme"


def test_each_of_several_stores_is_examined(sqlite_url: str) -> None:
    done = onebus("doctor", "--json", "carrier+pigeon://roof", sqlite_url)

    report = json.loads(done.stdout)
    assert [store["healthy"] for store in report["stores"]] == [False, True]
    assert (done.returncode, report["healthy"]) == (1, False)


async def test_nothing_stays_behind(sqlite_url: str) -> None:
    await examine(sqlite_url)

    async with create_store(sqlite_url) as store:
        assert await store.list_logs() == []


async def test_nothing_stays_behind_when_it_is_interrupted(sqlite_url: str) -> None:
    async with create_store(sqlite_url) as store:
        examination = asyncio.create_task(examine(sqlite_url))
        await eventually(store.list_logs)

        examination.cancel()
        await asyncio.gather(examination, return_exceptions=True)

        assert examination.cancelled()
        assert await store.list_logs() == []
