"""Claims, settles and releases on SQLite wait for nothing, so the event loop runs them where it can."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from onebus.stores import create_store
from onebus.stores.base import Store
from onebus.stores.sql import workers
from onebus.stores.sql.store import SqlStore
from tests.messages import numbered

MEBIBYTE = 1024 * 1024


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with create_store(f"sqlite:///{tmp_path}/bus.db") as store:
        yield store


async def others_had_a_turn(call: Awaitable[object]) -> bool:
    turns: list[None] = []
    asyncio.get_running_loop().call_soon(turns.append, None)
    await call
    return bool(turns)


def claim(store: Store) -> Awaitable[object]:
    return store.claim("log", limit=1, lease_seconds=30)


async def test_a_lease_is_taken_and_given_back_without_waking_a_thread(store: Store) -> None:
    await store.append("log", numbered(2))

    assert not await others_had_a_turn(claim(store))
    taken = await store.claim("log", limit=1, lease_seconds=30)
    assert not await others_had_a_turn(store.settle("log", taken.leases))

    stat = await store.stat("log")
    assert stat is not None
    assert (stat.claimable, stat.held) == (0, 1)


async def test_what_has_to_be_on_disk_is_left_to_a_thread(store: Store) -> None:
    await store.append("log", numbered(1))

    assert await others_had_a_turn(store.append("log", numbered(1)))
    assert await others_had_a_turn(store.claim("log", limit=1))


async def test_who_gives_a_message_back_wakes_those_who_wait(store: Store) -> None:
    await store.append("log", numbered(1))
    taken = await store.claim("log", limit=1, lease_seconds=30)
    async with store.watch("log") as watch:
        await store.release("log", taken.leases)

        assert await watch.wait(timeout_seconds=0.001)


async def test_the_event_loop_goes_on_while_another_process_has_the_lock(store: Store, tmp_path: Path) -> None:
    await store.append("log", numbered(1))
    other = sqlite3.connect(tmp_path / "bus.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    claiming = asyncio.create_task(store.claim("log", limit=1, lease_seconds=30))

    _, waiting = await asyncio.wait([claiming], timeout=0.01)
    assert waiting == {claiming}

    other.execute("ROLLBACK")
    other.close()
    assert (await claiming).count == 1


async def test_whoever_claims_again_and_again_lets_others_have_their_turn(store: Store) -> None:
    await store.append("log", numbered(100))

    async def claim_often() -> None:
        for _ in range(workers.MOST_AT_ONCE + 1):
            await claim(store)

    assert await others_had_a_turn(claim_often())


async def test_a_transaction_that_took_long_leaves_the_next_ones_to_a_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.append("log", numbered(2))
    monkeypatch.setattr(workers, "SLOW_SECONDS", 0.0)

    assert not await others_had_a_turn(claim(store))
    assert await others_had_a_turn(claim(store))


async def test_a_transaction_that_fails_is_tried_again_by_a_thread(store: Store) -> None:
    await store.append("log", numbered(1))
    assert isinstance(store, SqlStore)
    connection = store._linked.writers._desks[0].connection
    assert connection is not None
    connection.driver.close()

    taken = await store.claim("log", limit=1, lease_seconds=30)

    assert taken.count == 1


async def test_leases_alone_do_not_make_the_file_of_the_write_ahead_log_grow(store: Store, tmp_path: Path) -> None:
    count = 2000
    await store.append("log", numbered(count))
    taken = await store.claim("log", limit=1, lease_seconds=30)
    for _ in range(count - 1):
        taken = await store.claim("log", limit=1, lease_seconds=30, settle=taken.leases)

    # Each of them writes three pages of 16 KiB or more: together they would be a hundred.
    assert (tmp_path / "bus.db-wal").stat().st_size < 30 * MEBIBYTE


async def test_what_is_large_is_left_to_a_thread(store: Store) -> None:
    await store.append("log", numbered(1))

    assert await others_had_a_turn(store.append("log", numbered(1), durable=False))


async def test_many_leases_are_settled_by_a_thread(store: Store) -> None:
    await store.append("log", numbered(100))
    taken = [await store.claim("log", limit=1, lease_seconds=30) for _ in range(40)]
    leases = [lease for claim in taken for lease in claim.leases]

    assert await others_had_a_turn(store.settle("log", leases[::2]))
    assert await others_had_a_turn(store.claim("log", limit=60, lease_seconds=30))
