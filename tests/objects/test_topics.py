"""Topics: where messages go, and how groups read them."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import (
    InvalidArgument,
    MessagesMissed,
    PartitionLost,
    TopicExists,
    TopicMissing,
)
from onebus.log.retention import Retention
from onebus.message import Message
from onebus.objects.topics.consumer import TopicConsumer
from onebus.objects.topics.cursors import Cursors
from onebus.objects.topics.membership import members_of
from onebus.objects.topics.names import GroupName
from onebus.objects.topics.topic import Topic
from tests.eventually import eventually
from tests.objects.conftest import Connect
from tests.objects.hearing import Heard, comes_true, errors_of

PATIENCE_SECONDS = 40.0


async def read(consumer: TopicConsumer, count: int) -> list[tuple[int, Any]]:
    """Return the partitions and data of so many messages, and leave the group."""
    got: list[tuple[int, Any]] = []
    async with asyncio.timeout(PATIENCE_SECONDS), consumer:
        async for batch in consumer:
            got += [(batch.partition, message.data) for message in batch]
            if len(got) >= count:
                consumer.stop()
    return got


async def data_of(topic: Topic, partition: int) -> list[Any]:
    return [message.data for message in await topic.read(partition)]


async def has(consumer: TopicConsumer, count: int) -> None:
    """Return once a member has so many partitions."""
    await comes_true(lambda: sum(map(len, consumer.assignment.values())) == count)


# Publishing


async def test_messages_with_one_key_are_in_one_partition_in_their_order(bus: Bus, other_bus: Bus, name: str) -> None:
    here, there = bus.topic(name, partitions=5), other_bus.topic(name, partitions=5)

    places = [await (here if number % 2 else there).publish(number, key=f"key-{number % 3}") for number in range(12)]

    by_key = defaultdict(set)
    for number, place in enumerate(places):
        by_key[number % 3].add(place.partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())
    everything = [await data_of(here, partition) for partition in range(5)]
    for key in range(3):
        (partition,) = by_key[key]
        assert [number for number in everything[partition] if number % 3 == key] == list(range(key, 12, 3))


async def test_messages_of_all_kinds_come_back_as_what_they_were(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1)

    await topic.publish("text", key="k", headers={"a": "b"})
    await topic.publish(b"bytes")
    await topic.publish({"json": [1, None]}, partition=0)
    messages = await topic.read(0)

    assert [message.data for message in messages] == ["text", b"bytes", {"json": [1, None]}]
    assert (messages[0].key, messages[0].headers) == (b"k", {"a": "b"})


async def test_messages_without_key_are_spread_evenly(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=4)

    for number in range(40):
        await topic.publish(number)

    assert [len(await data_of(topic, partition)) for partition in range(4)] == [10] * 4


async def test_several_messages_are_published_together_and_stay_together(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=3)

    places = await topic.publish_many(["a", "b", "c"])
    others = await topic.publish_many([1, 2], partition=2)

    assert len({place.partition for place in places}) == 1
    assert [place.partition for place in others] == [2, 2]
    assert [place.id for place in places] == [1, 2, 3] or places[0].partition == 2


async def test_a_topic_is_as_whoever_came_first_wanted_it(bus: Bus, other_bus: Bus, name: str) -> None:
    await bus.topic(name, partitions=3).publish("a")

    await other_bus.topic(name, partitions=7).publish("b")

    assert (await other_bus.topic(name).describe()).partitions == 3


@pytest.mark.parametrize("partition", [-1, 3])
async def test_a_partition_that_does_not_exist_is_refused(bus: Bus, name: str, partition: int) -> None:
    with pytest.raises(InvalidArgument, match="partitions 0 to 2"):
        await bus.topic(name, partitions=3).publish("a", partition=partition)


async def test_retention_is_kept_by_everybody_who_publishes(bus: Bus, other_bus: Bus, name: str) -> None:
    await bus.topic(name, partitions=1, retention=Retention(max_count=3)).publish(0)

    topic = other_bus.topic(name)
    for number in range(1, 10):
        await topic.publish(number)

    assert await data_of(topic, 0) == [7, 8, 9]


# Groups


async def test_every_group_gets_everything_and_members_share(connect: Connect, bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=6)
    for number in range(60):
        await topic.publish(number, partition=number % 6)
    first, second = topic.consume("shared"), (await connect()).consume(name, group="shared")
    got: list[Any] = []

    async def work(member: TopicConsumer) -> None:
        async for batch in member:
            got.extend(message.data for message in batch)

    async with first, second:
        await has(first, 3)
        await has(second, 3)
        working = [asyncio.create_task(work(member)) for member in (first, second)]
        await comes_true(lambda: len(got) == 60)
        first.stop()
        second.stop()
        await asyncio.gather(*working)

    alone = await read(topic.consume("alone"), 60)
    assert sorted(got) == sorted(data for _, data in alone) == list(range(60))


async def test_a_batch_is_of_one_partition_and_in_order(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=3)
    for number in range(30):
        await topic.publish(number, partition=number % 3)

    got = await read(topic.consume("g", max_messages=4), 30)

    for partition in range(3):
        assert [data for number, data in got if number == partition] == list(range(partition, 30, 3))


async def test_a_group_goes_on_where_it_was(bus: Bus, other_bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=2)
    for number in range(10):
        await topic.publish(number, partition=number % 2)
    assert len(await read(topic.consume("g"), 10)) == 10
    await topic.publish("next", partition=1)

    assert await read(other_bus.topic(name).consume("g"), 1) == [(1, "next")]


async def test_what_was_not_done_is_delivered_again(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1)
    for number in range(3):
        await topic.publish(number)

    async def fail() -> None:
        async for batch in topic.consume("g", max_messages=1):
            if batch.messages[0].data == 1:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    assert await read(topic.consume("g"), 2) == [(0, 1), (0, 2)]


async def test_a_loop_that_is_left_leaves_the_group(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=2)
    await topic.publish("a", partition=0)
    consumer = topic.consume("g")

    async for _ in consumer:
        break

    await comes_true(lambda: not consumer.assignment)
    assert await read(topic.consume("g"), 1) == [(0, "a")]


async def test_by_hand_nothing_is_done_before_it_is_committed(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1)
    for number in range(4):
        await topic.publish(number)
    async with topic.consume("g", max_messages=1, auto_commit=False) as consumer:
        async for batch in consumer:
            if batch.messages[0].data == 1:
                assert (await topic.lag("g"))[0].position == 0
                await batch.commit()
            if batch.messages[0].data == 3:
                break

    assert await read(topic.consume("g"), 2) == [(0, 2), (0, 3)]


async def test_a_commit_returns_when_the_position_is_stored(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1)
    for number in range(4):
        await topic.publish(number)

    async with topic.consume("g", max_messages=1, auto_commit=False) as consumer:
        async for batch in consumer:
            await batch.commit()
            (partition,) = await topic.lag("g")
            assert (partition.position, partition.lag) == (batch.last_id, 4 - batch.last_id)
            if batch.last_id == 4:
                break


async def test_a_new_group_may_begin_at_the_end(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1)
    await topic.publish("old")

    async with topic.consume("late", start="end") as consumer:
        await has(consumer, 1)
        await topic.publish("new")

        assert await read(consumer, 1) == [(0, "new")]


async def test_a_group_that_began_at_the_end_misses_nothing_in_added_partitions(
    connect: Connect, bus: Bus, name: str
) -> None:
    topic = bus.topic(name, partitions=2)
    await topic.publish_many(["old"], partition=1)
    first, second = (own.consume(name, group="g", start="end") for own in (bus, await connect()))
    async with first, second:
        await has(first, 1)
        await has(second, 1)
    await topic.add_partitions(1)
    await topic.publish_many(["new"], partition=2)

    assert await read(topic.consume("g", start="end"), 1) == [(2, "new")]


async def test_a_group_may_begin_at_the_end_of_a_topic_that_is_still_missing(bus: Bus, name: str) -> None:
    async with bus.topic(name).consume("g", start="end", lease_seconds=1) as consumer:
        await bus.topic(name, partitions=2).publish("first")

        assert [data for _, data in await read(consumer, 1)] == ["first"]


async def test_several_topics_are_consumed_at_once(bus: Bus, name: str) -> None:
    for suffix in "ab":
        await bus.topic(f"{name}-{suffix}", partitions=2).publish(suffix)
    got = set()

    async with asyncio.timeout(PATIENCE_SECONDS), bus.consume(f"{name}-a", f"{name}-b", group="g") as consumer:
        async for batch in consumer:
            got.add((batch.topic, batch.messages[0].data))
            if len(got) == 2:
                break

    assert got == {(f"{name}-a", "a"), (f"{name}-b", "b")}


async def test_a_topic_may_be_consumed_before_it_exists(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.topic(name).consume("g", lease_seconds=1) as consumer:
        await other_bus.topic(name, partitions=2).publish("first")

        assert [data for _, data in await read(consumer, 1)] == ["first"]


# Rebalancing


async def test_one_who_joins_gets_a_fair_share_and_the_others_are_told(connect: Connect, bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=5)
    await topic.create()
    first = topic.consume("g")
    heard = Heard(first, "assigned", "revoked")
    async with first:
        await has(first, 5)
        async with (await connect()).consume(name, group="g") as second:
            await has(second, 2)
            await has(first, 3)
            together = sorted(first.assignment[name] + second.assignment[name])
        await has(first, 5)

    assert together == [0, 1, 2, 3, 4]
    assert heard.events[0] == ("assigned", name, [0, 1, 2, 3, 4])
    assert {event[0] for event in heard.events[1:3]} == {"revoked"}


async def test_a_partition_that_does_not_move_is_not_paused(connect: Connect, bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=2)
    await topic.create()
    delivered: list[int] = []
    first = topic.consume("g", max_messages=1)

    async def work() -> None:
        async for batch in first:
            delivered.append(batch.partition)
            stuck.set()
            if batch.messages[0].data == "slow":
                await release.wait()

    stuck, release = asyncio.Event(), asyncio.Event()
    async with first:
        await has(first, 2)
        async with (await connect()).consume(name, group="g") as second:
            await has(second, 1)
            (kept,), (moved,) = first.assignment[name], second.assignment[name]
            working = asyncio.create_task(work())
            await topic.publish("slow", partition=kept)
            await stuck.wait()
            await topic.publish("quick", partition=moved)

            assert await read(second, 1) == [(moved, "quick")]
            release.set()
            first.stop()
            await working
    assert delivered == [kept]


async def test_order_is_kept_while_members_come_and_go(connect: Connect, bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=4)
    got: dict[int, list[int]] = defaultdict(list)
    buses = [await connect() for _ in range(3)]

    async def member(own: Bus, seconds: float) -> None:
        consumer = own.consume(name, group="g", max_messages=7)
        asyncio.get_running_loop().call_later(seconds, consumer.stop)
        async for batch in consumer:
            got[batch.partition] += [message.data for message in batch]
            await asyncio.sleep(0)

    async def publish() -> None:
        for number in range(400):
            await topic.publish(number, partition=number % 4)

    staying = topic.consume("g", max_messages=7)

    async def stay() -> None:
        async for batch in staying:
            got[batch.partition] += [message.data for message in batch]

    resident = asyncio.create_task(stay())
    publishing = asyncio.create_task(publish())
    for own in buses:
        await member(own, 0.3)
    await publishing
    await comes_true(lambda: sum(map(len, got.values())) >= 400)
    staying.stop()
    await resident

    assert dict(got) == {partition: list(range(partition, 400, 4)) for partition in range(4)}


async def test_who_lost_a_partition_cannot_commit(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1)
    await topic.publish("a")
    cursors = Cursors(bus.link.store, GroupName(name, "g"))
    async with topic.consume("g", auto_commit=False) as consumer:
        heard = Heard(consumer, "revoked")
        batch = await consumer.next()
        assert batch is not None
        # As another member does that takes this one for dead.
        taken = await cursors.take(0, await cursors.get(0), "another", 0, "")

        with pytest.raises(PartitionLost):
            await batch.commit()
        await comes_true(lambda: ("revoked", name, [0]) in heard.events)

    assert taken.fence > batch.fence
    assert (await topic.lag("g"))[0].position == 0


async def test_a_partition_whose_owner_does_not_read_it_finds_somebody_who_does(
    connect: Connect, bus: Bus, name: str
) -> None:
    topic = bus.topic(name, partitions=4)
    await topic.create()
    group = GroupName(name, "g")
    cursors = Cursors(bus.link.store, group)
    first = topic.consume("g", lease_seconds=3)
    async with first:
        await has(first, 4)
        (id_of_first,) = await members_of(bus.link.store, group)
        async with (await connect()).consume(name, group="g", lease_seconds=3) as second:
            await has(second, 2)
            await has(first, 2)
            # As when the answer of the store gets lost while the first one takes it.
            for number in second.assignment[name]:
                await cursors.take(number, await cursors.get(number), id_of_first, 0, "")

            async def each_is_read_by_its_owner() -> bool:
                await bus.link.store.signal(group.place, b"changed")
                owners = [(await cursors.get(number)).owner for number in range(4)]
                of_first = [number for number, owner in enumerate(owners) if owner == id_of_first]
                of_second = [number for number in range(4) if number not in of_first]
                return (first.assignment[name], second.assignment[name]) == (of_first, of_second)

            await eventually(each_is_read_by_its_owner)


async def test_added_partitions_are_taken_at_once_and_keys_stay_where_they_are(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=2)
    before = [(await topic.publish("a", key=str(key))).partition for key in range(20)]
    async with topic.consume("g", lease_seconds=60) as consumer:
        await has(consumer, 2)

        await topic.add_partitions(3)

        await has(consumer, 5)
    assert [(await topic.publish("b", key=str(key))).partition for key in range(20)] == before
    await topic.add_partitions(1, for_keys=True)
    assert {(await topic.publish("c", key=str(key))).partition for key in range(60)} == set(range(6))


async def test_whoever_publishes_hears_of_added_partitions(bus: Bus, other_bus: Bus, name: str) -> None:
    here, there = bus.topic(name, partitions=2), other_bus.topic(name)
    for topic in (here, there):
        await topic.publish("a", key="k")

    await here.add_partitions(4, for_keys=True)

    assert (await there.publish("b", partition=5)).partition == 5
    spread = {(await here.publish("c", key=str(key))).partition: key for key in range(60)}
    assert set(spread) == set(range(6))
    assert {(await there.publish("d", key=str(key))).partition: key for key in range(60)} == spread


async def test_whoever_publishes_hears_that_keys_are_spread_anew(bus: Bus, other_bus: Bus, name: str) -> None:
    here, there = bus.topic(name, partitions=2), other_bus.topic(name)
    for topic in (here, there):
        await topic.publish("a", key="k")
    await here.add_partitions(4, for_keys=True)

    async def is_known() -> bool:
        return {(await there.publish("b", key=str(key))).partition for key in range(60)} == set(range(6))

    await eventually(is_known)


# Seeking


async def test_a_group_can_be_sent_back_while_it_reads(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=2)
    for number in range(10):
        await topic.publish(number, partition=number % 2)
    got: list[int] = []

    async with topic.consume("g", lease_seconds=60) as consumer:

        async def work() -> None:
            async for batch in consumer:
                got.extend(message.data for message in batch)

        working = asyncio.create_task(work())
        await comes_true(lambda: len(got) == 10)
        assert await topic.seek("g", message_id=4) == {0: 3, 1: 3}
        await comes_true(lambda: len(got) == 14)
        consumer.stop()
        await working

    assert sorted(got[10:]) == [6, 7, 8, 9]


async def test_a_group_can_go_to_a_time(connect: Connect, name: str) -> None:
    now_ms = 1_000_000
    bus = await connect(clock=lambda: now_ms)
    topic = bus.topic(name, partitions=1)
    for number in range(10):
        now_ms += 1000
        await topic.publish(number)

    assert await topic.seek("g", time=1005.5) == {0: 5}
    assert await topic.seek("g", time=0) == {0: 0}
    assert await topic.seek("g", time=9999) == {0: 10}


@pytest.mark.parametrize("where", [{}, {"message_id": 1, "time": 1.0}, {"message_id": 1, "partitions": [9]}])
async def test_a_seek_says_where_to(bus: Bus, name: str, where: dict[str, Any]) -> None:
    await bus.topic(name, partitions=1).create()

    with pytest.raises(InvalidArgument):
        await bus.topic(name).seek("g", **where)


async def test_a_group_is_told_of_messages_that_were_forgotten(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1, retention=Retention(max_count=2))
    await topic.publish(0)
    assert await read(topic.consume("g"), 1) == [(0, 0)]
    for number in range(1, 6):
        await topic.publish(number)
    consumer = topic.consume("g")
    errors = errors_of(consumer)

    assert [data for _, data in await read(consumer, 2)] == [4, 5]
    assert [(error.first, error.last) for error in errors if isinstance(error, MessagesMissed)] == [(2, 4)]


# The topic


async def test_a_topic_that_was_deleted_is_gone_and_begins_anew(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1)
    for number in range(3):
        await topic.publish(number)
    assert len(await read(topic.consume("g"), 3)) == 3

    await topic.delete()
    with pytest.raises(TopicMissing):
        await topic.describe()
    for number in range(5):
        await topic.publish(f"new {number}")

    assert [data for _, data in await read(topic.consume("g"), 5)] == [f"new {number}" for number in range(5)]


async def test_a_topic_is_created_once(bus: Bus, other_bus: Bus, name: str) -> None:
    await bus.topic(name).create()

    with pytest.raises(TopicExists):
        await other_bus.topic(name).create()


async def test_a_topic_tells_what_it_holds(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=2)
    await topic.publish_many(["a", "b"], partition=1)

    empty, full = await topic.partitions()

    assert (empty.last_id, full.first_id, full.last_id) == (0, 1, 2)
    assert full.bytes > 0


async def test_all_topics_are_listed(bus: Bus, name: str) -> None:
    await bus.topic(f"{name}-b").create()
    await bus.topic(f"{name}-a", partitions=2).publish_many([1, 2], partition=1)

    assert await bus.topics(name) == [f"{name}-a", f"{name}-b"]


# Keys


async def test_different_keys_are_handled_at_the_same_time_and_one_slow_key_delays_only_itself(
    bus: Bus, name: str
) -> None:
    topic = bus.topic(name, partitions=1)
    for number in range(20):
        await topic.publish(number, key="slow" if number % 10 == 0 else str(number % 5))
    handled: list[int] = []
    release = asyncio.Event()

    async def handle(message: Message) -> None:
        if message.key == b"slow":
            await release.wait()
        handled.append(message.data)

    consumer = topic.consume("g", max_messages=5)
    processing = asyncio.create_task(consumer.process(handle, key_concurrency=3))
    await comes_true(lambda: len(handled) == 18)
    assert (await topic.lag("g"))[0].position == 0
    release.set()
    await comes_true(lambda: len(handled) == 20)
    consumer.stop()
    await processing

    assert handled[-2:] == [0, 10]
    for key in range(1, 5):
        assert [number for number in handled if number % 5 == key] == list(range(key, 20, 5))
    assert (await topic.lag("g"))[0].position == 20


async def test_what_a_handler_raises_ends_the_processing_and_what_is_not_done_comes_again(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1)
    for number in range(3):
        await topic.publish(number)

    async def fail(message: Message) -> None:
        if message.data == 1:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await topic.consume("g", max_messages=1).process(fail)

    assert [data for _, data in await read(topic.consume("g"), 2)] == [1, 2]


# Compaction


async def test_of_each_key_the_last_message_stays(bus: Bus, other_bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1, compact=True)
    for number in range(9):
        await topic.publish(number, key=f"key-{number % 3}")
    await topic.publish("without a key")

    assert await topic.compact() == 6
    assert await data_of(topic, 0) == [6, 7, 8, "without a key"]

    await other_bus.topic(name).publish("newer", key="key-1")
    assert await other_bus.topic(name).compact() == 1
    assert await data_of(topic, 0) == [6, 8, "without a key", "newer"]
    assert [data for _, data in await read(topic.consume("g"), 4)] == [6, 8, "without a key", "newer"]


async def test_a_batch_stays_while_one_of_its_messages_was_not_replaced(bus: Bus, name: str) -> None:
    topic = bus.topic(name, partitions=1)
    await asyncio.gather(topic.publish("a1", key="a"), topic.publish("b1", key="b"))
    await topic.publish("a2", key="a")

    assert await topic.compact() == 1
    assert (await data_of(topic, 0))[-1] == "a2"
    assert "b1" in await data_of(topic, 0)


async def test_a_compact_topic_forgets_by_itself_while_messages_are_published(
    bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebus.objects.topics.topic.COMPACT_AFTER", 20)
    topic = bus.topic(name, partitions=1, compact=True)

    for number in range(40):
        await topic.publish(number, key="one")

    async def is_short() -> bool:
        return len(await data_of(topic, 0)) < 20

    await eventually(is_short)
