"""Redis claims the next messages for whoever waits for them, and hands them over with the wake-up."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from onebus.stores import create_store
from onebus.stores.base import Claim, Store
from onebus.stores.switchboard import Claimed, Watch
from tests.eventually import eventually
from tests.messages import claimed_ids, claimed_texts, numbered, stat_of
from tests.services import RedisServer

pytestmark = pytest.mark.xdist_group("redis")

LEASE_SECONDS = 30.0


@pytest.fixture
async def store(redis: RedisServer) -> AsyncIterator[Store]:
    async with create_store(redis.url) as store:
        yield store


@pytest.fixture
async def other_store(redis: RedisServer) -> AsyncIterator[Store]:
    async with create_store(redis.url) as store:
        yield store


@pytest.fixture
async def log(store: Store) -> str:
    log = f"log:{uuid4().hex}"
    await store.touch(log, create=True)
    return log


async def wait_for_messages(store: Store, log: str, watch: Watch, *, limit: int = 10) -> Claim:
    return await store.claim(log, limit=limit, lease_seconds=LEASE_SECONDS, owner=watch.token, waiter=watch)


async def handed_to(watch: Watch) -> Claimed:
    async def handed() -> Claimed | None:
        return watch.take_claimed()

    found = await eventually(handed)
    assert found is not None
    return found


async def is_unheard(redis: RedisServer, watch: Watch) -> bool:
    """Return whether Redis has noticed that nobody listens to what is handed to a watch any more."""
    async with Redis.from_url(redis.url) as client:
        return not await client.pubsub_channels(f"*{watch.token}*")


async def test_who_waits_is_handed_the_next_batch_and_holds_it(store: Store, other_store: Store, log: str) -> None:
    async with store.watch(log) as watch:
        assert not (await wait_for_messages(store, log, watch)).leases

        await other_store.append(log, numbered(3))

        claimed = await handed_to(watch)
        assert claimed_texts(Claim([claimed.lease], [claimed.batch])) == ["1", "2", "3"]
        assert not (await other_store.claim(log, limit=10, lease_seconds=1)).leases
        await store.settle(log, [claimed.lease])
        assert (await stat_of(store, log)).held == 0


async def test_no_more_is_handed_over_than_was_asked_for(store: Store, log: str) -> None:
    async with store.watch(log) as watch:
        await wait_for_messages(store, log, watch, limit=2)

        await store.append(log, numbered(5))

        claimed = await handed_to(watch)
        assert (claimed.lease.first, claimed.lease.last) == (1, 2)
        assert claimed_ids(await store.claim(log, limit=10, lease_seconds=1)) == [3, 4, 5]


async def test_who_was_handed_something_has_to_wait_anew(store: Store, log: str) -> None:
    async with store.watch(log) as watch:
        await wait_for_messages(store, log, watch)
        await store.append(log, numbered(1))
        await handed_to(watch)

        await store.append(log, numbered(1, start=2))

        assert claimed_ids(await store.claim(log, limit=10, lease_seconds=1)) == [2]
        assert watch.take_claimed() is None


async def test_a_new_message_is_not_handed_over_before_one_that_was_given_back(store: Store, log: str) -> None:
    await store.append(log, numbered(1))
    held = await store.claim(log, limit=1, lease_seconds=LEASE_SECONDS)
    async with store.watch(log) as watch:
        await wait_for_messages(store, log, watch)
        await store.release(log, held.leases)

        await store.append(log, numbered(1, start=2))

        assert claimed_ids(await wait_for_messages(store, log, watch)) == [1, 2]
        assert watch.take_claimed() is None


async def test_who_has_gone_is_handed_nothing(store: Store, redis: RedisServer, log: str) -> None:
    async with create_store(redis.url) as gone, gone.watch(log) as watch:
        await wait_for_messages(gone, log, watch)
        assert not await is_unheard(redis, watch)
    await eventually(lambda: is_unheard(redis, watch))

    await store.append(log, numbered(2))

    assert claimed_ids(await store.claim(log, limit=10, lease_seconds=1)) == [1, 2]


async def test_the_last_who_came_is_handed_the_message(store: Store, other_store: Store, log: str) -> None:
    async with store.watch(log) as first, other_store.watch(log) as last:
        await wait_for_messages(store, log, first)
        await wait_for_messages(other_store, log, last)

        await store.append(log, numbered(1))

        assert (await handed_to(last)).lease.first == 1
        assert first.take_claimed() is None


async def test_who_stops_waiting_learns_what_was_handed_over_and_is_handed_no_more(store: Store, log: str) -> None:
    async with store.watch(log) as watch:
        await wait_for_messages(store, log, watch)
        await store.append(log, numbered(2))

        held = await store.stop_waiting(log, watch, owner=watch.token)

        assert [(lease.first, lease.last) for lease in held] == [(1, 2)]
        await store.release(log, held, attempted=False)
        await store.clear(log)
        await store.append(log, numbered(1))
        assert claimed_ids(await store.claim(log, limit=10, lease_seconds=1)) == [3]


async def test_who_stops_waiting_before_anything_came_holds_nothing(store: Store, log: str) -> None:
    async with store.watch(log) as watch:
        await wait_for_messages(store, log, watch)

        assert await store.stop_waiting(log, watch, owner=watch.token) == []
        await store.append(log, numbered(1))

        assert claimed_ids(await store.claim(log, limit=10, lease_seconds=1)) == [1]


async def test_a_large_batch_is_fetched_and_not_handed_over(store: Store, log: str) -> None:
    async with store.watch(log) as watch:
        await wait_for_messages(store, log, watch)

        await store.append(log, numbered(2000))

        assert len(claimed_ids(await store.claim(log, limit=5000, lease_seconds=1))) == 2000
        assert watch.take_claimed() is None
