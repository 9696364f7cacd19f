"""What clients of raintank-queue get from the broker, without being changed."""

import json
from contextlib import AsyncExitStack

import pytest

from onebus import Bus
from onebus.zmq import Broker
from tests.eventually import eventually
from tests.zmq.addresses import Addresses
from tests.zmq.plain import PlainConsumer, array, plain_publisher

pytestmark = pytest.mark.usefixtures("broker")


async def test_messages_arrive_in_their_room_in_order(addresses: Addresses, bus: Bus) -> None:
    async with plain_publisher(addresses) as push, PlainConsumer(addresses) as consumer:
        await consumer.join("t", "g")
        for number in range(100):
            await push.send(array("t", [number, {"é": None}], partition=3))

        received = await consumer.has(200)

    assert received == [value for number in range(100) for value in (number, {"é": None})]
    assert set(consumer.rooms_heard) == {"t:3"}
    assert [message.data for message in await bus.topic("t").read(3, limit=3)] == [0, {"é": None}, 1]


async def test_a_frame_may_hold_arrays_for_several_partitions_and_a_partition_may_be_a_text(
    addresses: Addresses,
) -> None:
    async with plain_publisher(addresses) as push, PlainConsumer(addresses) as consumer:
        await consumer.join("t", "g")
        arrays = [{"topic": "t", "partition": "7", "payload": ["x"]}, {"topic": "t", "partition": 0, "payload": ["y"]}]
        await push.send(json.dumps(arrays).encode())
        await push.send(array("t", ["anywhere"]))

        received = await consumer.has(3)

    assert sorted(received) == ["anywhere", "x", "y"]
    assert {"t:7", "t:0"} <= set(consumer.rooms_heard)


async def test_members_of_a_group_share_the_partitions_and_another_group_gets_all(addresses: Addresses) -> None:
    async with (
        PlainConsumer(addresses) as one,
        PlainConsumer(addresses) as two,
        PlainConsumer(addresses) as other,
        plain_publisher(addresses) as push,
    ):
        await one.join("t", "g")
        await two.join("t", "g")
        await other.join("t", "other")

        async def shared() -> bool:
            return bool(one.told[-1]["partitions"] == [0, 1, 2, 3, 4])

        await eventually(shared)
        for partition in range(10):
            await push.send(array("t", [partition], partition=partition))
        received = await other.has(10)
        await one.has(5)
        await two.has(5)

    assert sorted(received) == list(range(10))
    assert sorted(one.messages) == [0, 1, 2, 3, 4]
    assert sorted(two.messages) == [5, 6, 7, 8, 9]


async def test_what_a_group_missed_while_it_was_away_waits_in_the_store(addresses: Addresses) -> None:
    async with plain_publisher(addresses) as push:
        async with PlainConsumer(addresses) as consumer:
            await consumer.join("t", "g")
            await push.send(array("t", ["before"], partition=1))
            await consumer.has(1)
        await push.send(array("t", ["meanwhile"], partition=1))
        async with PlainConsumer(addresses) as consumer:
            await consumer.join("t", "g")
            await push.send(array("t", ["after"], partition=1))

            assert await consumer.has(2) == ["meanwhile", "after"]


async def test_a_new_broker_on_the_same_store_goes_on_where_the_old_one_was(bus: Bus, addresses: Addresses) -> None:
    async with plain_publisher(addresses) as push, PlainConsumer(addresses) as consumer:
        await consumer.join("t", "g")
        await push.send(array("t", ["before"], partition=1))
        await consumer.has(1)
    await bus.topic("t").publish("meanwhile", partition=1)
    elsewhere = Addresses()
    async with Broker(bus, **elsewhere.of_broker), PlainConsumer(elsewhere) as consumer:
        await consumer.join("t", "g")

        assert await consumer.has(1) == ["meanwhile"]


async def test_a_new_broker_waits_for_all_groups_that_the_old_one_had(bus: Bus, addresses: Addresses) -> None:
    old, new = Addresses(), addresses
    async with AsyncExitStack() as stack, Broker(bus, **old.of_broker):
        for group in ("g1", "g2"):
            consumer = await stack.enter_async_context(PlainConsumer(old))
            await consumer.join("t", group)
    await bus.topic("t").publish("meanwhile", partition=1)
    async with PlainConsumer(new) as one, PlainConsumer(new) as two:
        await one.join("t", "g1")
        await one.join("new", "g1")
        await bus.topic("new").publish("elsewhere", partition=1)
        assert await one.has(1) == ["elsewhere"]
        await two.join("t", "g2")

        assert await two.has(1) == ["meanwhile"]
        assert await one.has(2) == ["elsewhere", "meanwhile"]
