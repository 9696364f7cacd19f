import asyncio

import pytest

from onebus.errors import AlreadyAppended, InvalidArgument, StagingLost
from onebus.log.mark import Mark
from onebus.log.retention import Retention
from onebus.stores.base import FOREVER, Store
from tests.clock import FakeClock
from tests.messages import batch_of, claimed_texts, numbered, stat_of, texts_of


async def staged(store: Store, log: str, *batches: bytes) -> tuple[str, list[int]]:
    """Return a staging log, and the last ids of its batches."""
    staging = await store.stage(log, ttl_seconds=60)
    ends = []
    for batch in batches:
        await store.append(staging, batch, durable=False)
        ends.append((await stat_of(store, staging)).last_id)
    return staging, ends


async def test_batches_go_to_the_end_of_a_log_in_the_order_asked_for(store: Store, log: str) -> None:
    await store.append(log, numbered(3))
    staging, ends = await staged(store, log, batch_of("6", "7"), batch_of("4", "5"))

    assert await store.transfer(staging, log, ends[::-1]) == 4
    await store.append(log, batch_of("8"))

    found = await store.read(log, after=0)
    assert texts_of(found) == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert [batch.last_id for batch in found.batches] == [3, 5, 7, 8]
    assert texts_of(await store.read(log, after=4), after=4) == ["5", "6", "7", "8"]


async def test_a_log_comes_into_being_with_what_is_transferred_to_it(store: Store, log: str) -> None:
    staging, ends = await staged(store, log, numbered(2))

    assert await store.stat(log) is None
    assert await store.transfer(staging, log, ends) == 1

    stat = await stat_of(store, log)
    assert (stat.first_id, stat.last_id, stat.claimable, stat.ttl_seconds) == (1, 2, 2, FOREVER)


async def test_what_is_transferred_is_as_if_it_had_been_appended(store: Store, log: str) -> None:
    appended, batches = f"{log}|appended", [numbered(2), numbered(3, start=3), numbered(1, start=6)]
    for batch in batches:
        await store.append(appended, batch)
    staging, ends = await staged(store, log, *batches)

    await store.transfer(staging, log, ends[:2])
    await store.transfer(staging, log, ends[2:])

    one, other = await stat_of(store, log), await stat_of(store, appended)
    assert (one.first_id, one.last_id, one.bytes) == (other.first_id, other.last_id, other.bytes)
    # What is read at once is counted in bytes.
    for max_bytes in (1, len(batches[0]) + len(batches[1]), 1_000_000):
        slices = [await store.read(name, after=0, max_bytes=max_bytes) for name in (log, appended)]
        assert texts_of(slices[0]) == texts_of(slices[1])
    assert claimed_texts(await store.claim(log, limit=4)) == ["1", "2", "3", "4"]
    assert claimed_texts(await store.claim(log, limit=4)) == ["5", "6"]


async def test_one_staging_log_serves_several_logs_of_its_place(store: Store, log: str) -> None:
    one, other = f"{log}|1", f"{log}|2"
    staging, ends = await staged(store, one, batch_of("a"), batch_of("b"), batch_of("c"), batch_of("d"))

    await asyncio.gather(store.transfer(staging, one, ends[::2]), store.transfer(staging, other, ends[1::2]))

    assert texts_of(await store.read(one, after=0)) == ["a", "c"]
    assert texts_of(await store.read(other, after=0)) == ["b", "d"]


async def test_batches_are_transferred_once(store: Store, log: str) -> None:
    staging, ends = await staged(store, log, batch_of("a"), batch_of("b"))
    await store.transfer(staging, log, ends[:1])

    with pytest.raises(StagingLost, match="1 batches"):
        await store.transfer(staging, log, ends)
    with pytest.raises(StagingLost, match="1 batches"):
        await store.transfer(f"{staging}0", log, ends[:1])

    assert texts_of(await store.read(log, after=0)) == ["a"]
    assert await store.transfer(staging, log, ends[1:]) == 2


async def test_a_transfer_that_fails_creates_no_log(store: Store, log: str) -> None:
    staging, _ = await staged(store, log, batch_of("a"))

    with pytest.raises(StagingLost):
        await store.transfer(staging, log, [999], mark=Mark("a", 1))

    assert await store.stat(log) is None


async def test_a_transfer_with_a_mark_happens_once(store: Store, log: str) -> None:
    staging, ends = await staged(store, log, numbered(2), batch_of("3"))
    await store.transfer(staging, log, ends[:1], mark=Mark("a", 7))

    for batches in (ends[:1], ends[1:]):
        with pytest.raises(AlreadyAppended) as caught:
            await store.transfer(staging, log, batches, mark=Mark("a", 7))
        assert (caught.value.number, caught.value.first_id) == (7, 1)
    with pytest.raises(AlreadyAppended):
        await store.append(log, batch_of("x"), mark=Mark("a", 6))

    assert await store.transfer(staging, log, ends[1:], mark=Mark("a", 8)) == 3
    assert texts_of(await store.read(log, after=0)) == ["1", "2", "3"]


async def test_a_transfer_forgets_what_exceeds_the_limits(store: Store, log: str) -> None:
    await store.append(log, numbered(3))
    staging, ends = await staged(store, log, numbered(2, start=4), numbered(2, start=6))

    await store.transfer(staging, log, ends, retain=Retention(max_count=3))

    assert texts_of(await store.read(log, after=0)) == ["5", "6", "7"]


async def test_what_is_transferred_is_as_old_as_its_transfer(timed_store: Store, clock: FakeClock, log: str) -> None:
    staging, ends = await staged(timed_store, log, batch_of("a"))
    clock.advance(30)
    await timed_store.transfer(staging, log, ends)
    clock.advance(40)

    await timed_store.trim(log, Retention(max_age_seconds=50))

    assert texts_of(await timed_store.read(log, after=0)) == ["a"]


async def test_a_mirror_gets_what_is_transferred_too(store: Store, log: str) -> None:
    mirror = f"{log}|mirror"
    await store.append(mirror, batch_of("0"))
    staging, ends = await staged(store, log, batch_of("a", "b"), batch_of("c"))

    await store.transfer(staging, log, ends, mirror=mirror, mirror_retain=Retention(max_count=3), mark=Mark("s", 1))

    found, mirrored = await store.read(log, after=0), await store.read(mirror, after=0)
    assert texts_of(found) == ["a", "b", "c"]
    assert texts_of(mirrored) == ["a", "b", "c"]
    assert [(batch.twin.log, batch.twin.first_id) for batch in found.batches if batch.twin] == [
        (mirror, 2),
        (mirror, 4),
    ]
    assert [(batch.twin.log, batch.twin.first_id) for batch in mirrored.batches if batch.twin] == [(log, 1), (log, 3)]
    with pytest.raises(StagingLost):
        await store.transfer(staging, log, ends, mirror=mirror, mark=Mark("s", 2))


async def test_a_transfer_wakes_those_who_watch(store: Store, other_store: Store, log: str) -> None:
    staging, ends = await staged(store, log, batch_of("a"))
    async with other_store.watch(log) as watch:
        await watch.wait(0)

        await store.transfer(staging, log, ends)

        assert await watch.wait(10)


async def test_staging_logs_are_listed_by_themselves(store: Store, log: str) -> None:
    staging, ends = await staged(store, log, batch_of("a"))
    await store.transfer(staging, log, ends)

    assert await store.list_logs(log) == [log]
    assert await store.list_staging(log) == [staging]

    await store.drop(staging)
    assert await store.list_staging(log) == []


async def test_what_is_staged_ends_by_itself(timed_store: Store, clock: FakeClock, log: str) -> None:
    staging, ends = await staged(timed_store, log, batch_of("a"))
    kept, kept_ends = await staged(timed_store, log, batch_of("b"))
    await timed_store.touch(kept, ttl_seconds=FOREVER)
    clock.advance(61)

    with pytest.raises(StagingLost):
        await timed_store.transfer(staging, log, ends)
    assert await timed_store.transfer(kept, log, kept_ends) == 1


async def test_many_staging_logs_live_side_by_side(store: Store, log: str) -> None:
    await store.append(log, batch_of("0"))
    several = [await staged(store, log, batch_of(str(number))) for number in range(1, 200)]
    for staging, ends in several:
        await store.transfer(staging, log, ends)

    assert texts_of(await store.read(log, after=0)) == [str(number) for number in range(200)]
    await asyncio.gather(*(store.drop(staging) for staging, _ in several))


async def test_a_transfer_names_each_batch_once_and_stays_within_its_place(store: Store, log: str) -> None:
    staging, ends = await staged(store, log, batch_of("a"))

    for bad in (f"{log}x", staging):
        with pytest.raises(InvalidArgument):
            await store.transfer(staging, bad, ends)
    with pytest.raises(InvalidArgument):
        await store.transfer(staging, log, ends, mirror="elsewhere")
    for bad_ids in ([], [*ends, *ends]):
        with pytest.raises(InvalidArgument):
            await store.transfer(staging, log, bad_ids)


async def test_an_append_need_not_wait_for_the_disk(store: Store, other_store: Store, log: str) -> None:
    assert await store.append(log, batch_of("a"), durable=False) == 1
    assert await store.append(log, batch_of("b"), durable=False, mark=Mark("a", 1)) == 2

    assert texts_of(await other_store.read(log, after=0)) == ["a", "b"]


async def test_no_append_brings_a_staging_log_back(store: Store, other_store: Store, log: str) -> None:
    staging, _ = await staged(store, log, batch_of("a"))
    await other_store.drop(staging)

    for _ in range(2):
        with pytest.raises(StagingLost):
            await store.append(staging, batch_of("b"), durable=False)
    with pytest.raises(StagingLost):
        await store.append(staging, batch_of("b"), mark=Mark("a", 1))

    assert await store.list_staging(log) == []
