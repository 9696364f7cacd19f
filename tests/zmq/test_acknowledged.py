"""Our own publisher and consumer, which know what is stored and what is done."""

import asyncio
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from onebus import Bus
from onebus.errors import NotConnected, PayloadTooLarge, RequestFailed, StoreUnavailable
from onebus.zmq import Broker
from onebus.zmq.frames import MAX_FRAME_BYTES, Header
from tests.eventually import eventually
from tests.objects.hearing import comes_true
from tests.zmq.addresses import Addresses
from tests.zmq.plain import PlainConsumer
from tests.zmq.recorder import Recorder, publisher_of


async def test_messages_are_stored_when_send_returns(broker: Broker, addresses: Addresses, bus: Bus) -> None:
    async with publisher_of(addresses) as publisher:
        await publisher.send("t", 3, [1, {"two": 2}, "three"])
        await publisher.send("t", ["anywhere"])
        await publisher.batch([{"topic": "t", "partition": "3", "payload": [4]}, {"topic": "u", "payload": [5]}])

        stored = [message.data for message in await bus.topic("t").read(3)]
        counts = [state.last_id for state in await bus.topic("t").partitions()]
        assert [one for one in stored if one != "anywhere"] == [1, {"two": 2}, "three", 4]
        assert sum(counts) == 5
        assert sum(state.last_id for state in await bus.topic("u").partitions()) == 1


async def test_many_sends_at_once_are_stored_in_their_order(broker: Broker, addresses: Addresses, bus: Bus) -> None:
    async with publisher_of(addresses) as publisher:
        await asyncio.gather(*(publisher.send("t", 0, [number]) for number in range(3000)))

    assert [message.data for message in await bus.topic("t").read(0, limit=5000)] == list(range(3000))


async def test_the_order_stays_when_the_store_fails_in_between(
    broker: Broker, addresses: Addresses, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = bus.link.store.append, 0

    async def fail_once(*values: Any, **options: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            await asyncio.sleep(0.1)
            raise StoreUnavailable("One connection broke.")
        return await append(*values, **options)

    monkeypatch.setattr(bus.link.store, "append", fail_once)
    async with publisher_of(addresses) as publisher:
        # The last one alone is more than fits into a batch.
        arrays = [range(start, start + 100) for start in range(0, 50_000, 100)] + [range(50_000, 75_000)]
        await asyncio.gather(*(publisher.send("t", 0, list(array)) for array in arrays))

    stored = [message.data for message in await bus.topic("t").read(0, limit=100_000)]
    assert stored == list(range(75_000))


async def test_what_no_broker_takes_is_refused_before_it_is_sent(addresses: Addresses) -> None:
    async with publisher_of(addresses) as publisher:
        with pytest.raises(PayloadTooLarge):
            await publisher.send("t", ["x" * MAX_FRAME_BYTES])


async def test_what_is_sent_while_the_broker_is_away_is_stored_when_it_is_back(bus: Bus, addresses: Addresses) -> None:
    async with publisher_of(addresses) as publisher:
        sending = [asyncio.create_task(publisher.send("t", 0, [number])) for number in range(100)]
        await asyncio.sleep(0)
        async with Broker(bus, **addresses.of_broker):
            await asyncio.gather(*sending)
        sending = [asyncio.create_task(publisher.send("t", 0, [number])) for number in range(100, 200)]
        async with Broker(bus, **addresses.of_broker):
            await asyncio.gather(*sending)

    assert [message.data for message in await bus.topic("t").read(0)] == list(range(200))


async def test_whoever_waits_for_a_receipt_hears_that_the_publisher_was_closed(addresses: Addresses) -> None:
    async with publisher_of(addresses) as publisher:
        sending = asyncio.create_task(publisher.send("t", 0, ["lost"]))
        await asyncio.sleep(0)

    with pytest.raises(NotConnected):
        await sending
    with pytest.raises(NotConnected):
        await publisher.send("t", ["too late"])


async def test_a_consumer_gets_everything_in_order_and_its_group_moves(
    broker: Broker, addresses: Addresses, bus: Bus
) -> None:
    async with publisher_of(addresses) as publisher, Recorder(addresses) as consumer:
        await consumer.join("t", "g")
        await consumer.is_ready(*range(10))
        await asyncio.gather(*(publisher.send("t", number % 10, [number]) for number in range(1000)))

        assert await consumer.has(1000) == {partition: list(range(partition, 1000, 10)) for partition in range(10)}

        async def all_done() -> bool:
            return all(state.lag == 0 for state in await bus.topic("t").lag("g"))

        await eventually(all_done)


async def test_what_was_not_acknowledged_goes_to_whoever_comes_next(broker: Broker, addresses: Addresses) -> None:
    async with publisher_of(addresses) as publisher:
        begun = asyncio.Event()

        async def hang(*_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with Recorder(addresses) as doomed:
            doomed.on("message", hang)
            await doomed.join("t", "g")
            await doomed.is_ready(*range(10))
            await publisher.send("t", 0, [1, 2])
            await begun.wait()
            await publisher.send("t", 0, [3])
        async with Recorder(addresses) as heir:
            await heir.join("t", "g")

            assert await heir.has(3) == {0: [1, 2, 3]}


async def test_a_partition_moves_only_after_its_batch_is_done(broker: Broker, addresses: Addresses) -> None:
    async with publisher_of(addresses) as publisher, Recorder(addresses) as one, Recorder(addresses) as two:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def wait(*_: object) -> None:
            begun.set()
            await go_on.wait()

        one.on("message", wait)
        await one.join("t", "g")
        await one.is_ready(*range(10))
        await asyncio.gather(*(publisher.send("t", partition, ["first"]) for partition in range(10)))
        await begun.wait()
        await two.join("t", "g")
        await two.is_ready(5, 6, 7, 8, 9)
        early = dict(two.got)
        go_on.set()
        await asyncio.gather(*(publisher.send("t", partition, ["second"]) for partition in range(10)))
        await two.has(5)

        async def all_there() -> bool:
            return one.total + two.total >= 20

        await eventually(all_there)

    assert early == {}
    for partition in range(10):
        assert one.got.get(partition, []) + two.got.get(partition, []) == ["first", "second"]


async def test_what_a_consumer_dropped_between_two_assignments_comes_again_in_order(
    broker: Broker, addresses: Addresses, bus: Bus
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: str, __: int, messages: list[Any]) -> None:
        if messages == ["slow"]:
            begun.set()
            await go_on.wait()

    async with (
        publisher_of(addresses) as publisher,
        Recorder(addresses) as consumer,
        PlainConsumer(addresses) as passing,
    ):
        consumer.on("message", wait)
        await consumer.join("t", "g")
        await consumer.is_ready(*range(10))
        await publisher.send("t", 0, ["slow"])
        await begun.wait()
        # It waits behind the slow one, and its partition is taken away and given back meanwhile.
        await publisher.send("t", 9, ["first"])
        await comes_true(lambda: any(one.client for one in broker._streams["t", "g"]._offered[9]))
        passing.answers = False
        await passing.io.emit("join", {"topic": "t", "group": "g", "inbox": "0" * 32})
        await comes_true(lambda: consumer.assignment["t", "g"] == [0, 1, 2, 3, 4])
        go_on.set()
        await consumer.is_ready(0, 1, 2, 3, 4)
        await passing.io.disconnect()
        await consumer.is_ready(*range(10))
        await publisher.send("t", 9, ["second"])

        assert await consumer.has(3) == {0: ["slow"], 9: ["first", "second"]}

        async def all_done() -> bool:
            return all(state.lag == 0 for state in await bus.topic("t").lag("g"))

        await eventually(all_done)


async def test_a_batch_that_overtook_a_lost_one_waits_for_it(addresses: Addresses) -> None:
    async with Recorder(addresses) as consumer:
        consumer._told["t", "g"] = {"partitions": [0]}

        async def arrives(sequence: int, previous: int) -> None:
            header = Header("t", "g", 0, sequence, previous)
            await consumer._handle(header, msgspec.json.encode([sequence]))

        for sequence, previous in ((4, 3), (3, 0), (4, 3), (3, 0), (7, 6), (6, 0)):
            await arrives(sequence, previous)

    assert consumer.got == {0: [3, 4, 6]}


async def test_a_consumer_joins_again_when_the_broker_is_back(bus: Bus, addresses: Addresses) -> None:
    events: list[str] = []
    async with publisher_of(addresses) as publisher, Recorder(addresses) as consumer:
        consumer.on("connect", lambda: events.append("connect"))
        consumer.on("disconnect", lambda: events.append("disconnect"))
        await consumer.join("t", "g")
        async with Broker(bus, **addresses.of_broker):
            await consumer.is_ready(*range(10))
            await publisher.send("t", 1, ["before"])
            await consumer.has(1)
        await bus.topic("t").publish("meanwhile", partition=1)
        async with Broker(bus, **addresses.of_broker):
            await publisher.send("t", 1, ["after"])

            assert await consumer.has(3) == {1: ["before", "meanwhile", "after"]}
    assert events[:3] == ["connect", "disconnect", "connect"]


async def test_what_cannot_be_stored_is_refused_and_nothing_else(
    broker: Broker, addresses: Addresses, bus: Bus
) -> None:
    async with publisher_of(addresses) as publisher:
        good = publisher.send("t", 0, ["good"])
        bad = [publisher.send("t", 10, ["x"]), publisher.send("t", 0, ["x" * 2_000_000]), publisher.send("", ["x"])]
        results = await asyncio.gather(good, *bad, return_exceptions=True)

    assert results[0] is None
    assert [error.remote_code for error in results[1:] if isinstance(error, RequestFailed)] == [
        "invalid_argument",
        "payload_too_large",
        "invalid_name",
    ]
    assert [message.data for message in await bus.topic("t").read(0)] == ["good"]


async def test_what_is_sent_again_to_a_broker_that_lives_on_is_stored_once(
    broker: Broker, addresses: Addresses, bus: Bus
) -> None:
    context = zmq.asyncio.Context()
    frame = b'{"topic":"t","partition":0,"payload":["x"]}'
    receipts = []
    for _ in range(2):
        dealer = context.socket(zmq.DEALER)
        dealer.connect(addresses.receipts)
        await dealer.send_multipart([b"publisher", b"1", frame])
        receipts.append(await dealer.recv_multipart())
    context.destroy(linger=0)

    assert receipts == [[b"1", b""]] * 2
    assert [message.data for message in await bus.topic("t").read(0)] == ["x"]


async def test_partitions_that_were_added_are_served_at_once(broker: Broker, addresses: Addresses, bus: Bus) -> None:
    async with publisher_of(addresses) as publisher, Recorder(addresses) as consumer:
        await consumer.join("t", "g")
        await consumer.is_ready(*range(10))
        await publisher.send("t", 0, ["before"])
        await bus.topic("t").add_partitions(2)

        await publisher.send("t", 11, ["after"])

        assert await consumer.has(2) == {0: ["before"], 11: ["after"]}


async def test_what_is_wrong_in_a_batch_keeps_nothing_else_from_being_stored(
    broker: Broker, addresses: Addresses, bus: Bus
) -> None:
    async with publisher_of(addresses) as publisher:
        await publisher.batch([])
        await publisher.send("t", 0, [])
        with pytest.raises(RequestFailed, match="not 10"):
            await publisher.batch([{"topic": "t", "partition": number, "payload": [number]} for number in (9, 10, 8)])

    assert [message.data for number in (8, 9) for message in await bus.topic("t").read(number)] == [8, 9]
    assert broker.refused == 1


async def test_a_handler_may_close_its_consumer(broker: Broker, addresses: Addresses) -> None:
    async with publisher_of(addresses) as publisher, Recorder(addresses) as consumer:
        closed = asyncio.Event()

        async def close(*_: object) -> None:
            await consumer.close()
            closed.set()

        consumer.on("message", close)
        await consumer.join("t", "g")
        await consumer.is_ready(*range(10))
        await publisher.send("t", 0, ["last"])
        await asyncio.wait_for(closed.wait(), 20)

    assert consumer.got == {0: ["last"]}


async def test_whoever_runs_a_broker_hears_that_a_part_of_it_failed(
    broker: Broker, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("onebus.zmq.intake.Intake._store", fail)
    async with publisher_of(addresses) as publisher:
        sending = asyncio.create_task(publisher.send("t", ["x"]))
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(broker.wait(), 20)

    with pytest.raises(NotConnected):
        await sending
