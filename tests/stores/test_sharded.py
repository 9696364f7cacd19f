import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from onebus.errors import StoreUnavailable
from onebus.stores import create_store
from onebus.stores.base import Store, StoreOptions
from onebus.stores.memory import MemoryStore
from onebus.stores.sharded import ShardedStore
from tests.conftest import running
from tests.messages import batch_of, numbered, texts_of
from tests.services import RedisServer


@pytest.fixture
async def shards() -> AsyncIterator[list[Store]]:
    stores: list[Store] = [MemoryStore(uuid4().hex) for _ in range(3)]
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


async def homes(names: list[str], shards: list[Store]) -> dict[str, int]:
    lists = [await shard.list_logs() for shard in shards]
    return {name: next(index for index, names in enumerate(lists) if name in names) for name in names}


async def test_logs_are_spread_evenly(shards: list[Store]) -> None:
    async with ShardedStore(shards) as store:
        for number in range(600):
            await store.append(f"log-{number}", numbered(1))

        for shard in shards:
            assert 140 < len(await shard.list_logs()) < 260


async def test_the_order_of_the_list_does_not_matter(shards: list[Store]) -> None:
    names = [f"log-{number}" for number in range(50)]
    store = ShardedStore(shards)
    await store.open()
    for name in names:
        await store.append(name, numbered(1))
    before = await homes(names, shards)

    reversed_store = ShardedStore(shards[::-1])
    await reversed_store.open()
    for name in names:
        await reversed_store.append(name, numbered(1))

    assert await homes(names, shards) == before


async def test_a_store_added_later_takes_new_logs_and_moves_none(shards: list[Store]) -> None:
    names = [f"log-{number}" for number in range(60)]
    store = ShardedStore(shards[:2])
    await store.open()
    for name in names:
        await store.append(name, batch_of("before"))
    before = await homes(names, shards)

    await store.add(shards[2])

    for name in names:
        assert await store.append(name, batch_of("after")) == 2
        assert texts_of(await store.read(name, after=0)) == ["before", "after"]
    assert await homes(names, shards) == before
    for number in range(60):
        await store.append(f"new-{number}", numbered(1))
    assert 5 < len(await shards[2].list_logs("new-")) < 40


async def test_a_process_with_a_longer_list_finds_what_one_with_a_shorter_list_made(shards: list[Store]) -> None:
    old, new = ShardedStore(shards[:2]), ShardedStore(shards)
    await old.open()
    await new.open()
    for number in range(40):
        await old.append(f"log-{number}", batch_of("old"))

        assert await new.append(f"log-{number}", batch_of("new")) == 2


async def test_all_logs_of_a_place_live_together(shards: list[Store]) -> None:
    async with ShardedStore(shards) as store:
        for number in range(20):
            for channel in ("/a", "/b", "/c"):
                await store.append(f"site-{number}|{channel}", numbered(1), mirror=f"site-{number}|")

        for number in range(20):
            assert sorted([len(await shard.list_logs(f"site-{number}|")) for shard in shards]) == [0, 0, 4]


async def test_an_outage_of_one_store_does_not_stop_the_others(tmp_path: Path) -> None:
    with running(RedisServer()) as server:
        options = StoreOptions(deadline_seconds=1)
        shards = [create_store(url, options) for url in (f"sqlite:///{tmp_path}/bus.db", server.url)]
        async with ShardedStore(shards) as store:
            changes: list[bool] = []
            store.health.on_change(changes.append)
            names = [f"log-{number}" for number in range(20)]
            for name in names:
                await store.append(name, numbered(1))
            in_sqlite, in_redis = [await shard.list_logs() for shard in shards]

            await asyncio.to_thread(server.stop)

            for name in in_sqlite:
                assert await store.append(name, numbered(1)) == 2
            for name in (in_redis[0], "never-seen-before"):
                with pytest.raises(StoreUnavailable):
                    await store.append(name, numbered(1))
            assert changes == [False]
