"""What went wrong in raintank-queue, and does not here. The first line of a test says what went wrong."""

import asyncio
from typing import Any

import pytest
import socketio
import zmq
import zmq.asyncio

from onebus import Bus
from onebus.errors import InvalidArgument, RequestFailed
from onebus.zmq import Broker
from tests.eventually import eventually
from tests.objects.hearing import comes_true
from tests.zmq.addresses import Addresses
from tests.zmq.plain import PlainConsumer, array, plain_publisher
from tests.zmq.recorder import Recorder, publisher_of


async def shares(consumer: PlainConsumer, *partitions: int) -> None:
    async def told() -> bool:
        return bool(consumer.told) and consumer.told[-1]["partitions"] == list(partitions)

    await eventually(told)


async def test_no_room_is_the_beginning_of_another(bus: Bus, addresses: Addresses) -> None:
    """raintank-queue: with 12 partitions whoever has 1 also gets 10 and 11."""
    async with (
        Broker(bus, **addresses.of_broker, partitions=12),
        PlainConsumer(addresses) as one,
        PlainConsumer(addresses) as two,
        Recorder(addresses) as ours,
        plain_publisher(addresses) as push,
    ):
        await one.join("t", "g")
        await two.join("t", "g")
        await ours.join("t", "ours")
        await ours.is_ready(*range(12))
        for partition in range(12):
            await push.send(array("t", [partition], partition=partition))
        await one.has(6)
        await two.has(6)
        got = await ours.has(12)

    assert sorted(one.messages + two.messages) == list(range(12))
    assert "t:01" in one.rooms_heard + two.rooms_heard
    assert got == {partition: [partition] for partition in range(12)}


async def test_no_room_is_the_beginning_of_another_when_partitions_were_added(
    broker: Broker, bus: Bus, addresses: Addresses
) -> None:
    """raintank-queue: any number of partitions above 10 is wrong."""
    async with (
        PlainConsumer(addresses) as one,
        PlainConsumer(addresses) as two,
        plain_publisher(addresses) as push,
    ):
        await one.join("t", "g")
        await two.join("t", "g")
        await shares(two, 5, 6, 7, 8, 9)
        await bus.topic("t").add_partitions(2)
        await comes_true(lambda: "01" in one.told[-1]["partitions"] + two.told[-1]["partitions"])
        for partition in range(12):
            await push.send(array("t", [partition], partition=partition))
        await one.has(6)
        await two.has(6)

    assert sorted(one.messages + two.messages) == list(range(12))


async def test_a_topic_may_have_a_colon_in_its_name(broker: Broker, addresses: Addresses) -> None:
    """raintank-queue: a topic with a colon in its name is taken for another one."""
    heard: list[tuple[str, int, list[Any]]] = []
    async with (
        publisher_of(addresses) as publisher,
        Recorder(addresses) as consumer,
        PlainConsumer(addresses) as plain,
    ):
        consumer.on("message", lambda *values: heard.append(values))
        await consumer.join("a:b", "g")
        await consumer.is_ready(*range(10))
        await publisher.send("a:b", 2, ["x"])
        await consumer.has(1)
        # Whoever would take it for another topic is told, instead of being sent what is not meant for it.
        await plain.io.emit("join", {"topic": "a:b", "group": "g"})

        async def refused() -> bool:
            return bool(plain.errors)

        await eventually(refused)

    assert heard == [("a:b", 2, ["x"])]
    assert "split rooms at ':'" in plain.errors[0]["message"]


async def test_an_empty_group_stops_nobody(broker: Broker, addresses: Addresses) -> None:
    """raintank-queue: a group whose last member left stops the topic for all groups, for ever."""
    async with PlainConsumer(addresses) as one, plain_publisher(addresses) as push:
        await one.join("t", "g1")
        async with PlainConsumer(addresses) as two:
            await two.join("t", "g2")
        await push.send(array("t", ["x"], partition=0))

        assert await one.has(1) == ["x"]


@pytest.mark.parametrize(
    "frame",
    [
        b"no JSON",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        array("t", None),
        array("t", {"length": -1}),
        array("t", ["x"], partition="undefined"),
        array("t", ["x"], partition=25),
        array("t", ["x"], partition=-1),
        array("", ["x"]),
        b'{"topic":"t"}',
    ],
)
async def test_a_bad_frame_is_counted_and_harms_nobody(broker: Broker, addresses: Addresses, frame: bytes) -> None:
    """raintank-queue: one bad frame ends the broker."""
    async with plain_publisher(addresses) as push, PlainConsumer(addresses) as consumer:
        await consumer.join("t", "g")
        await push.send(frame)
        await push.send(array("t", ["good"], partition=2))

        assert await consumer.has(1) == ["good"]
    assert broker.refused == 1


async def test_an_array_may_be_very_long(broker: Broker, addresses: Addresses) -> None:
    """raintank-queue: an array of 200,000 messages ends the broker."""
    async with plain_publisher(addresses) as push, PlainConsumer(addresses) as consumer:
        await consumer.join("t", "g")
        await push.send(array("t", list(range(200_000)), partition=2))

        assert await consumer.has(200_000) == list(range(200_000))


@pytest.mark.parametrize("event", ["join", "ready", "ack"])
@pytest.mark.parametrize("said", [None, "text", {}, {"topic": "t", "group": "g", "partition": "x"}, {"topic": 1}])
async def test_a_client_that_talks_nonsense_harms_nobody(
    broker: Broker, addresses: Addresses, event: str, said: Any
) -> None:
    """raintank-queue: a ready from somebody who never joined ends the broker."""
    async with plain_publisher(addresses) as push, PlainConsumer(addresses) as consumer:
        await consumer.io.emit(event, said)
        await consumer.join("t", "g")
        await push.send(array("t", ["x"], partition=0))

        assert await consumer.has(1) == ["x"]


async def test_a_request_for_a_receipt_with_missing_frames_harms_nobody(broker: Broker, addresses: Addresses) -> None:
    context = zmq.asyncio.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(addresses.receipts)
    await dealer.send(b"alone")
    async with publisher_of(addresses) as publisher:
        await publisher.send("t", ["x"])

    async def counted() -> bool:
        return broker.refused == 1

    await eventually(counted)
    context.destroy(linger=0)


async def test_joining_twice_counts_once(broker: Broker, addresses: Addresses) -> None:
    """raintank-queue: who joins twice counts twice, and half of the partitions are read by nobody."""
    async with PlainConsumer(addresses) as one, PlainConsumer(addresses) as two:
        await one.join("t", "g")
        await one.join("t", "g")
        assert one.told[-1]["partitions"] == list(range(10))
        await two.join("t", "g")
        await shares(two, 5, 6, 7, 8, 9)
        await shares(one, 0, 1, 2, 3, 4)


async def test_a_consumer_may_be_in_two_groups_of_a_topic(broker: Broker, addresses: Addresses) -> None:
    """raintank-queue: a consumer in two groups gets one copy, and stays in one of them after its death."""
    async with publisher_of(addresses) as publisher, Recorder(addresses) as other:
        async with Recorder(addresses) as consumer:
            await consumer.join("t", "g1")
            await consumer.join("t", "g2")

            async def in_both() -> bool:
                return {told["group"] for told in consumer.ready} == {"g1", "g2"}

            await eventually(in_both)
            await publisher.send("t", 0, ["x"])
            assert await consumer.has(2) == {0: ["x", "x"]}
        # Both groups are left when it goes, and go on with whoever comes.
        await other.join("t", "g1")
        await other.join("t", "g2")
        await publisher.send("t", 0, ["y"])

        assert (await other.has(2))[0][-2:] == ["y", "y"]


async def test_a_consumer_that_lost_the_broker_handles_nothing_until_it_is_told_again(
    bus: Bus, addresses: Addresses
) -> None:
    """raintank-queue: who lost the broker goes on with half of its partitions, beside their new owner."""
    async with Recorder(addresses) as consumer:
        await consumer.join("t", "g")
        async with Broker(bus, **addresses.of_broker):
            await consumer.is_ready(*range(10))

        async def let_go() -> bool:
            return consumer.assignment == {}

        await eventually(let_go)


async def test_nothing_is_dropped_for_a_consumer_that_reads_slowly(broker: Broker, addresses: Addresses) -> None:
    """raintank-queue: what a slow consumer has not read is dropped."""
    text = "x" * 20_000
    async with plain_publisher(addresses) as push, PlainConsumer(addresses) as consumer:
        await consumer.join("t", "g")
        consumer.pause()
        for number in range(3000):
            await push.send(array("t", [[number, text]], partition=0))
        # More than all buffers on the way can hold.
        await asyncio.sleep(1)
        consumer.go_on()

        assert [number for number, _ in await consumer.has(3000)] == list(range(3000))


async def test_two_brokers_in_one_process_know_nothing_of_each_other(bus: Bus) -> None:
    """raintank-queue: two brokers in one process share their buffers and topics."""
    here, there = Addresses(), Addresses()
    async with (
        Bus("memory://elsewhere") as elsewhere,
        Broker(bus, **here.of_broker),
        Broker(elsewhere, **there.of_broker),
        Recorder(here) as one,
        Recorder(there) as two,
        publisher_of(here) as publisher,
        publisher_of(there) as other,
    ):
        await one.join("t", "g")
        await two.join("t", "g")
        await one.is_ready(*range(10))
        await two.is_ready(*range(10))
        await publisher.send("t", 0, ["here"])
        await other.send("t", 0, ["there"])

        assert await one.has(1) == {0: ["here"]}
        assert await two.has(1) == {0: ["there"]}


async def test_two_brokers_on_one_store_share_its_partitions(bus: Bus) -> None:
    here, there = Addresses(), Addresses()
    async with (
        Broker(bus, **here.of_broker),
        Broker(bus, **there.of_broker),
        Recorder(here) as one,
        Recorder(there) as two,
        publisher_of(here) as publisher,
    ):
        await one.join("t", "g")
        await one.is_ready(*range(10))
        await two.join("t", "g")

        async def shared() -> bool:
            return all(len(told.get(("t", "g"), ())) == 5 for told in (one.assignment, two.assignment))

        await eventually(shared)
        await asyncio.gather(*(publisher.send("t", number % 10, [number]) for number in range(100)))

        async def all_there() -> bool:
            return one.total + two.total >= 100

        await eventually(all_there)
    assert one.got | two.got == {partition: list(range(partition, 100, 10)) for partition in range(10)}


async def test_partitions_that_stay_go_on_while_others_move(broker: Broker, addresses: Addresses) -> None:
    """raintank-queue: the whole topic stops, for all groups, whenever somebody comes or goes."""
    async with publisher_of(addresses) as publisher, Recorder(addresses) as one, PlainConsumer(addresses) as joining:
        await one.join("t", "g")
        await one.is_ready(*range(10))
        # It never says that it is ready, so what moves to it has to wait.
        joining.answers = False
        await joining.io.emit("join", {"topic": "t", "group": "g", "inbox": "0" * 32})
        await one.is_ready(0, 1, 2, 3, 4)
        await asyncio.gather(*(publisher.send("t", partition, ["x"]) for partition in range(10)))
        during = dict(await one.has(5))
        await joining.io.disconnect()

        assert await one.has(10) == {partition: ["x"] for partition in range(10)}
    assert during == {partition: ["x"] for partition in range(5)}


async def test_an_old_ready_does_not_count_for_something_newer(broker: Broker, addresses: Addresses) -> None:
    """raintank-queue: a late ready counts for a newer rebalance."""
    async with (
        PlainConsumer(addresses) as one,
        PlainConsumer(addresses) as two,
        plain_publisher(addresses) as push,
    ):
        one.answers = False
        await one.join("t", "g")
        await two.join("t", "g")
        await shares(one, 0, 1, 2, 3, 4)
        await one.io.emit("ready", one.told[0])
        await push.send(array("t", ["early"], partition=0))
        await push.send(array("t", ["other"], partition=9))
        await two.has(1)
        early = list(one.messages)
        await one.io.emit("ready", one.told[-1])

        assert await one.has(1) == ["early"]
    assert early == []


async def test_whoever_does_not_know_the_secret_cannot_join(bus: Bus, addresses: Addresses) -> None:
    """raintank-queue: nobody has to prove anything."""
    async with Broker(bus, **addresses.of_broker, secret="correct horse"):
        client = socketio.AsyncClient(reconnection=False)
        with pytest.raises(socketio.exceptions.ConnectionError):
            await client.connect(addresses.management, auth={"token": "wrong"}, transports=["websocket"])
        await client.shutdown()
        await client.connect(addresses.management, auth={"token": "correct horse"}, transports=["websocket"])
        await client.disconnect()


@pytest.mark.parametrize("where", ["consumer_socket_addr", "publisher_socket_addr", "mgmt_url"])
def test_other_machines_are_let_in_only_with_a_secret(where: str) -> None:
    """raintank-queue: the broker listens on all addresses, to everybody."""
    address = "http://0.0.0.0:9999" if where == "mgmt_url" else "tcp://0.0.0.0:9998"

    with pytest.raises(InvalidArgument, match="secret"):
        Broker("memory://", **{where: address})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="secret"):
        Broker("memory://", **{where: address}, open_sockets=True)  # type: ignore[arg-type]
    Broker("memory://", **{where: address}, secret="x")  # type: ignore[arg-type]


async def test_a_wrong_belief_about_the_number_of_partitions_is_an_error(broker: Broker, addresses: Addresses) -> None:
    """raintank-queue: a publisher that believes in another number of partitions loses messages silently."""
    async with publisher_of(addresses, partitions=20) as publisher:
        with pytest.raises(RequestFailed, match="has 10 partitions, and not 20"):
            await publisher.send("t", 3, ["x"])
