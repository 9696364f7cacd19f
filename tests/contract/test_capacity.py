import asyncio

import pytest

from onebus.errors import LogFull
from onebus.log.retention import KEEP_ALL, Retention
from onebus.stores.base import Store
from tests.clock import FakeClock
from tests.messages import batch_of, claimed_ids, numbered, stat_of, texts_of


async def room_left(store: Store, log: str, count: int, capacity: int, retain: Retention = KEEP_ALL) -> int:
    """Return how much would have fitted when a batch of `count` messages did not."""
    with pytest.raises(LogFull) as caught:
        await store.append(log, numbered(count), capacity=capacity, retain=retain)
    return caught.value.room


async def test_a_log_can_be_filled_to_its_capacity_and_not_further(store: Store, log: str) -> None:
    assert await store.append(log, numbered(3), capacity=5) == 1
    assert await store.append(log, numbered(2, start=4), capacity=5) == 4

    with pytest.raises(LogFull, match="capacity") as caught:
        await store.append(log, numbered(1), capacity=5)

    assert (caught.value.log, caught.value.room) == (log, 0)
    assert (caught.value.code, caught.value.retryable) == ("log_full", True)
    assert texts_of(await store.read(log, after=0)) == ["1", "2", "3", "4", "5"]


async def test_a_batch_that_does_not_fit_is_refused_as_a_whole(store: Store, log: str) -> None:
    await store.append(log, numbered(3))
    before = await store.stat(log), await store.read(log, after=0)

    room = await room_left(store, log, 3, capacity=5)

    assert room == 2
    assert (await store.stat(log), await store.read(log, after=0)) == before
    assert await store.append(log, numbered(room), capacity=5) == 4


async def test_a_refused_batch_creates_no_log(store: Store, log: str) -> None:
    assert await room_left(store, log, 6, capacity=5) == 5

    assert await store.stat(log) is None
    assert await store.list_logs(log) == []


async def test_a_log_beyond_its_capacity_has_no_room(store: Store, log: str) -> None:
    await store.append(log, numbered(10))

    assert await room_left(store, log, 1, capacity=5) == 0
    assert await store.append(log, numbered(1)) == 11


async def test_messages_that_are_held_count_and_settled_ones_do_not(store: Store, log: str) -> None:
    await store.append(log, numbered(6))
    (lease,) = (await store.claim(log, limit=5, lease_seconds=30)).leases
    assert await room_left(store, log, 2, capacity=7) == 1

    await store.settle(log, [lease.part(2, 3)])

    assert await room_left(store, log, 4, capacity=7) == 3
    await store.append(log, numbered(3), capacity=7)


async def test_messages_that_are_done_at_once_make_room(store: Store, log: str) -> None:
    await store.append(log, numbered(5), capacity=5)
    await store.claim(log, limit=2)

    assert await room_left(store, log, 3, capacity=5) == 2


async def test_messages_that_came_back_or_wait_still_count(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.append(log, numbered(6))
    (lease,) = (await timed_store.claim(log, limit=6, lease_seconds=30)).leases
    await timed_store.release(log, [lease.part(1, 2)])
    await timed_store.release(log, [lease.part(3, 4)], delay_seconds=60)
    assert await room_left(timed_store, log, 2, capacity=7) == 1

    clock.advance(31)

    assert await room_left(timed_store, log, 2, capacity=7) == 1


async def test_what_was_trimmed_or_cleared_does_not_count(store: Store, log: str) -> None:
    await store.append(log, numbered(6))
    await store.claim(log, limit=4, lease_seconds=30)
    await store.trim(log, Retention(max_count=3))
    assert await room_left(store, log, 4, capacity=6) == 3

    await store.clear(log)

    assert await room_left(store, log, 7, capacity=6) == 6


async def test_what_an_append_trims_in_the_same_step_makes_room(timed_store: Store, clock: FakeClock, log: str) -> None:
    await timed_store.append(log, numbered(4))
    await timed_store.claim(log, limit=3, lease_seconds=100)
    clock.advance(10)
    await timed_store.append(log, numbered(2, start=5))
    young = Retention(max_age_seconds=5)
    before = await timed_store.stat(log)
    assert await room_left(timed_store, log, 4, capacity=5) == 0
    assert await room_left(timed_store, log, 4, capacity=5, retain=young) == 3
    assert await timed_store.stat(log) == before

    await timed_store.append(log, numbered(3, start=7), capacity=5, retain=young)

    assert (await stat_of(timed_store, log)).first_id == 5
    assert claimed_ids(await timed_store.claim(log, limit=9)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("held", [1, 3, 4, 5])
async def test_a_limit_within_the_capacity_leaves_nothing_to_refuse(store: Store, log: str, held: int) -> None:
    await store.append(log, numbered(5))
    await store.claim(log, limit=held, lease_seconds=30)

    await store.append(log, numbered(2, start=6), capacity=4, retain=Retention(max_count=4))
    await store.append(log, numbered(9, start=8), capacity=4, retain=Retention(max_count=4))

    stat = await stat_of(store, log)
    assert (stat.claimable, stat.held) == (4, 0)
    assert texts_of(await store.read(log, after=0)) == ["13", "14", "15", "16"]


async def test_batches_displaced_by_their_size_make_room(store: Store, log: str) -> None:
    blob = batch_of("x" * 500, "y" * 500)
    for _ in range(3):
        await store.append(log, blob)
    two_batches = Retention(max_bytes=2 * len(blob))
    with pytest.raises(LogFull) as caught:
        await store.append(log, blob, capacity=3, retain=two_batches)
    assert caught.value.room == 1

    assert await store.append(log, blob, capacity=4, retain=two_batches) == 7

    assert (await stat_of(store, log)).first_id == 5
    # The next one is trimmed just as if nothing had ever been refused.
    assert await store.append(log, blob, retain=two_batches) == 9
    assert (await stat_of(store, log)).first_id == 7


async def test_a_refused_batch_does_not_prolong_the_life_of_the_log(
    timed_store: Store, clock: FakeClock, log: str
) -> None:
    await timed_store.touch(log, ttl_seconds=10, create=True)
    await timed_store.append(log, numbered(5))
    clock.advance(9)
    assert await room_left(timed_store, log, 1, capacity=5) == 0
    clock.advance(1)

    assert await timed_store.stat(log) is None
    assert await timed_store.append(log, numbered(5), capacity=5) == 1


async def test_the_capacity_of_a_mirrored_append_concerns_the_first_log(store: Store, log: str) -> None:
    channel, site = f"{log}|/chat", f"{log}|"
    await store.append(f"{log}|/other", numbered(9), mirror=site)

    await store.append(channel, numbered(3), mirror=site, capacity=3)

    assert (await stat_of(store, site)).last_id == 12
    with pytest.raises(LogFull) as caught:
        await store.append(channel, numbered(1), mirror=site, capacity=3)
    assert (caught.value.log, caught.value.room) == (channel, 0)
    assert ((await stat_of(store, channel)).last_id, (await stat_of(store, site)).last_id) == (3, 12)


async def test_producers_never_exceed_the_capacity_together(store: Store, other_store: Store, log: str) -> None:
    results = await asyncio.gather(
        *(one.append(log, numbered(2), capacity=7) for one in (store, other_store) * 10), return_exceptions=True
    )

    assert sorted(result for result in results if isinstance(result, int)) == [1, 3, 5]
    assert [result.room for result in results if isinstance(result, LogFull)] == [1] * 17
    assert (await stat_of(store, log)).claimable == 6
