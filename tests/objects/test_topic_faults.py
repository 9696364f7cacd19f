"""Topics whose store fails, and topics that change under those who read them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import AccessDenied, BusError, PartitionLost, StoreFull, StoreUnavailable, VersionConflict
from onebus.log.retention import Retention
from onebus.objects.topics.consumer import TopicConsumer
from onebus.objects.topics.cursors import Cursors
from onebus.objects.topics.membership import Membership, members_of
from onebus.objects.topics.names import GroupName, log_of
from tests.objects.hearing import Heard, comes_true, errors_of

PATIENCE_SECONDS = 40.0


@asynccontextmanager
async def collecting(consumer: TopicConsumer) -> AsyncIterator[list[Any]]:
    """Consume until the end of the block, and write down the data that came."""
    got: list[Any] = []

    async def collect() -> None:
        async for batch in consumer:
            got.extend(message.data for message in batch)

    task = asyncio.create_task(collect())
    try:
        yield got
    finally:
        consumer.stop()
        await task


@contextmanager
def failing(
    bus: Bus, method: str, error: BusError, where: Callable[[str], bool] = lambda _: True
) -> Iterator[list[str]]:
    """Let an operation of the store fail until the end of the block; return the names of what failed."""
    store = bus.link.store
    working = getattr(store, method)
    failed: list[str] = []

    async def fail(name: str, *values: Any, **options: Any) -> Any:
        if where(name):
            failed.append(name)
            raise error
        return await working(name, *values, **options)

    setattr(store, method, fail)
    try:
        yield failed
    finally:
        setattr(store, method, working)


# A topic that is another one


async def test_who_reads_a_topic_that_is_deleted_and_made_again_misses_nothing(local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=1)
    await topic.publish_many(["old"] * 3)
    async with collecting(topic.consume("g")) as got:
        await comes_true(lambda: len(got) == 3)
        await topic.delete()
        await local_bus.topic("t", partitions=1).publish_many([f"new {number}" for number in range(6)])

        await comes_true(lambda: got[3:] == [f"new {number}" for number in range(6)])


async def test_the_position_in_a_topic_that_was_made_again_is_its_own(local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=1)
    await topic.publish_many(["old"] * 3)
    async with collecting(topic.consume("g")) as got:
        await comes_true(lambda: len(got) == 3)
        await topic.delete()
        await topic.publish_many(["new"] * 3)
        await comes_true(lambda: len(got) == 6)

    async with topic.consume("g") as consumer:
        await topic.publish("next")
        batch = await consumer.next()

    assert batch is not None
    assert [message.data for message in batch] == ["next"]


async def test_a_topic_may_be_made_again_with_fewer_partitions_while_it_is_read(local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=10)
    await topic.publish("old", partition=0)
    consumer = topic.consume("g", lease_seconds=1)
    heard = Heard(consumer, "rebalance")
    async with collecting(consumer) as got:
        await comes_true(lambda: got == ["old"])
        await topic.delete()
        narrow = local_bus.topic("t", partitions=4)
        for partition in range(4):
            await narrow.publish(partition, partition=partition)

        await comes_true(lambda: sorted(map(str, got)) == ["0", "1", "2", "3", "old"])
        await comes_true(lambda: consumer.assignment == {"t": [0, 1, 2, 3]})
    assert ("rebalance", "t", [0, 1, 2, 3]) in heard.events


@pytest.mark.parametrize("compact", [False, True])
async def test_a_group_that_is_new_has_missed_nothing(local_bus: Bus, compact: bool) -> None:
    retention = Retention() if compact else Retention(max_count=2)
    topic = local_bus.topic("t", partitions=1, retention=retention, compact=compact)
    for number in range(6):
        await topic.publish(number, key=str(number % 2))
    await topic.compact()
    consumer = topic.consume("g")
    errors = errors_of(consumer)

    async with collecting(consumer) as got:
        await comes_true(lambda: got == [4, 5])
    assert errors == []


async def test_programs_that_publish_one_message_each_do_not_all_choose_one_partition(local_bus: Bus) -> None:
    chosen = {(await local_bus.topic("t", partitions=4).publish("x")).partition for _ in range(40)}

    assert chosen == {0, 1, 2, 3}


# A store that fails


@pytest.mark.parametrize("error", [StoreFull("There is no room."), StoreUnavailable("It is away.")])
async def test_a_member_goes_on_after_the_store_refused_for_a_while(local_bus: Bus, error: BusError) -> None:
    topic = local_bus.topic("t", partitions=2)
    await topic.create()
    consumer = topic.consume("g", lease_seconds=0.6)
    async with collecting(consumer) as got:
        await comes_true(lambda: consumer.assignment == {"t": [0, 1]})
        with failing(local_bus, "put", error) as failed:
            await topic.publish("a", partition=0)
            await comes_true(lambda: len(failed) > 10 and got == ["a"])
        await topic.publish("b", partition=1)

        await comes_true(lambda: got == ["a", "b"])
        await comes_true(lambda: consumer.assignment == {"t": [0, 1]})
    assert [state.lag for state in await topic.lag("g")] == [0, 0]


@pytest.mark.parametrize("record", ["|member:", "|group:g|0"])
async def test_a_loop_raises_what_makes_it_impossible_to_go_on(local_bus: Bus, record: str) -> None:
    topic = local_bus.topic("t", partitions=1)
    await topic.create()
    consumer = topic.consume("g", lease_seconds=0.6)
    errors_of(consumer)
    await consumer.join()
    await comes_true(lambda: consumer.assignment == {"t": [0]})

    async def loop() -> None:
        async for _ in consumer:
            pass

    with failing(local_bus, "put", AccessDenied("No more."), lambda name: record in name):
        await topic.publish("x")
        with pytest.raises(AccessDenied):
            await asyncio.wait_for(loop(), PATIENCE_SECONDS)


async def test_a_commit_survives_that_the_store_fails_twice(local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=1)
    await topic.publish("x")
    async with topic.consume("g", auto_commit=False) as consumer:
        batch = await consumer.next()
        assert batch is not None
        with (
            failing(local_bus, "put", VersionConflict("Somebody was faster."), lambda name: name.endswith("|0")),
            failing(local_bus, "get", StoreUnavailable("It is away."), lambda name: name.endswith("|0")) as failed,
        ):
            committing = asyncio.create_task(batch.commit())
            await comes_true(lambda: len(failed) > 1)

        await asyncio.wait_for(committing, PATIENCE_SECONDS)
    assert [state.lag for state in await topic.lag("g")] == [0]


async def test_whoever_waits_for_a_commit_that_cannot_be_is_told(local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=1)
    await topic.publish("x")
    async with topic.consume("g", auto_commit=False) as consumer:
        errors_of(consumer)
        batch = await consumer.next()
        assert batch is not None
        with (
            failing(local_bus, "put", AccessDenied("No more."), lambda name: name.endswith("|0")),
            pytest.raises(PartitionLost),
        ):
            await asyncio.wait_for(batch.commit(), PATIENCE_SECONDS)


async def test_who_could_not_join_may_try_again(local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=1)
    await topic.publish("x")
    consumer = topic.consume("g")
    with failing(local_bus, "put", StoreUnavailable("It is away.")), pytest.raises(StoreUnavailable):
        await consumer.join()

    async with collecting(consumer) as got:
        await comes_true(lambda: got == ["x"])


# Leases


async def test_a_slow_handler_of_events_costs_no_partitions(local_bus: Bus, other_local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=2)
    await topic.create()
    first = topic.consume("g", lease_seconds=0.6)
    release = asyncio.Event()
    first.on("assigned", lambda *_: release.wait())
    async with first:
        await comes_true(lambda: first.assignment == {"t": [0, 1]})
        async with other_local_bus.consume("t", group="g", lease_seconds=0.6) as second:
            # Several leases long.
            await asyncio.sleep(1.5)
            during = first.assignment, second.assignment
            release.set()
            await comes_true(lambda: len(second.assignment["t"]) == len(first.assignment["t"]) == 1)
    assert during == ({"t": [0, 1]}, {"t": []})


async def test_a_dead_member_is_noticed_within_the_lease(local_bus: Bus, other_local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=2)
    await topic.create()
    lease_seconds = 2.0
    loop = asyncio.get_running_loop()
    async with (
        topic.consume("g", lease_seconds=lease_seconds) as living,
        other_local_bus.consume("t", group="g", lease_seconds=lease_seconds) as dead,
    ):
        await comes_true(lambda: len(living.assignment["t"]) == len(dead.assignment["t"]) == 1)
        (share,) = dead._shares
        for task in share._working:
            task.cancel()
        await share._membership.renew()
        died = loop.time()
        await comes_true(lambda: len(living.assignment["t"]) == 2)

        assert loop.time() - died < lease_seconds


async def test_who_is_sent_somewhere_else_while_leaving_reads_no_more(local_bus: Bus, other_local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=2)
    for partition in range(2):
        await topic.publish("x", partition=partition)
    async with topic.consume("g", auto_commit=False) as first:
        batches = [await first.next() for _ in range(2)]
        async with other_local_bus.consume("t", group="g") as second:
            await comes_true(lambda: len(first.assignment["t"]) == 1)
            (moving,) = {0, 1} - set(first.assignment["t"])
            (share,) = first._shares
            reading = share._owned[moving]
            await topic.seek("g", message_id=1, partitions=[moving])
            for batch in batches:
                if batch is not None:
                    batch.finish()
            await comes_true(lambda: second.assignment["t"] == [moving])

            assert reading._reader is not None
            assert reading._reader.done()


# Compaction


async def test_who_compacts_too_long_does_not_end_the_turn_of_another(
    local_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = local_bus.topic("t", partitions=1)
    await topic.publish("x", key="k")
    store, turn = local_bus.link.store, f"{log_of('t', 0)}|compaction"

    async def take_long(*_: object) -> list[int]:
        await store.delete(turn)
        await store.put(turn, {"turn": b"of another"}, expected=0)
        return []

    monkeypatch.setattr("onebus.objects.topics.compaction._replaced", take_long)
    await topic.compact()

    record = await store.get(turn)
    assert record is not None
    assert record.fields == {"turn": b"of another"}


async def test_who_loses_a_partition_is_told_what_is_left(local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=2)
    await topic.create()
    consumer = topic.consume("g", lease_seconds=60)
    heard = Heard(consumer, "rebalance")
    cursors = Cursors(local_bus.link.store, GroupName("t", "g"))
    async with consumer:
        await comes_true(lambda: consumer.assignment == {"t": [0, 1]})
        await cursors.take(1, await cursors.get(1), "another", 0, "")
        await local_bus.link.store.signal(GroupName("t", "g").place, b"changed")

        await comes_true(lambda: ("rebalance", "t", [0]) in heard.events)
    assert await members_of(local_bus.link.store, GroupName("t", "g")) == []


async def test_who_joins_while_others_look_around_keeps_what_it_took(
    local_bus: Bus, other_local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = local_bus.topic(name, partitions=2)
    await topic.create()
    has_looked, may_go_on = asyncio.Event(), asyncio.Event()
    living = Membership.living

    async def slow_the_first_time(membership: Membership) -> list[str]:
        found = await living(membership)
        if not has_looked.is_set():
            has_looked.set()
            await may_go_on.wait()
        return found

    monkeypatch.setattr(Membership, "living", slow_the_first_time)
    async with topic.consume("g") as slow:
        await has_looked.wait()
        async with other_local_bus.topic(name).consume("g") as fast:
            await comes_true(lambda: len(fast.assignment[name]) == 1)
            for partition in range(2):
                await topic.publish("once", partition=partition)
            batch = await fast.next()

            may_go_on.set()
            await comes_true(lambda: len(slow.assignment[name]) == 1)

            assert batch is not None
            await batch.commit()
            assert fast.assignment[name] == [batch.partition]
