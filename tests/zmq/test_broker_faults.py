"""What a broker does when its store fails, when its parts end, and when clients come and go quickly."""

import asyncio
from typing import Any

import pytest
import zmq

from onebus import Bus
from onebus.errors import ServerUnavailable, StoreUnavailable
from onebus.zmq import Broker
from onebus.zmq.audience import Audience
from tests.eventually import eventually
from tests.zmq.addresses import Addresses
from tests.zmq.plain import PlainConsumer, array, plain_publisher
from tests.zmq.recorder import Recorder, publisher_of


class FailingOnce:
    """Stands for an operation of a store that fails the first time that it is asked for certain records."""

    def __init__(self, working: Any, part_of_name: str) -> None:
        self._working = working
        self._part_of_name = part_of_name
        self.has_failed = False

    async def __call__(self, name: str, *values: Any, **options: Any) -> Any:
        if self._part_of_name in name and not self.has_failed:
            self.has_failed = True
            raise StoreUnavailable("It is away.")
        return await self._working(name, *values, **options)


async def test_a_topic_is_served_although_the_store_failed_when_somebody_joined(
    broker: Broker, addresses: Addresses, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = FailingOnce(bus.link.store.put, "|member:")
    monkeypatch.setattr(bus.link.store, "put", put)
    async with Recorder(addresses) as consumer, publisher_of(addresses) as publisher:
        await consumer.join("t", "g")
        await consumer.is_ready(*range(10))
        await publisher.send("t", 0, ["x"])

        assert await consumer.has(1) == {0: ["x"]}
    assert put.has_failed


async def test_a_topic_is_served_again_after_something_failed_for_good(
    broker: Broker, addresses: Addresses, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Recorder(addresses) as consumer, publisher_of(addresses) as publisher:
        await consumer.join("t", "g")
        await consumer.is_ready(*range(10))
        broker._streams["t", "g"]._share_failed(ZeroDivisionError())
        await publisher.send("t", 0, ["x"])

        assert await consumer.has(1) == {0: ["x"]}


async def test_a_frame_waits_while_the_store_cannot_say_what_its_topic_is(
    broker: Broker, addresses: Addresses, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.topic("t", partitions=3).create()
    get = FailingOnce(bus.link.store.get, "topic:t")
    monkeypatch.setattr(bus.link.store, "get", get)

    async with publisher_of(addresses) as publisher:
        await publisher.send("t", 2, ["x"])

    assert get.has_failed
    assert broker.refused == 0


async def test_who_leaves_before_the_broker_has_joined_leaves_nothing_behind(
    broker: Broker, addresses: Addresses, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, held = bus.link.store.put, asyncio.Event()

    async def slowly(name: str, *values: Any, **options: Any) -> Any:
        result = await put(name, *values, **options)
        if "|member:" in name and not held.is_set():
            held.set()
            await asyncio.sleep(0.3)
        return result

    monkeypatch.setattr(bus.link.store, "put", slowly)
    async with PlainConsumer(addresses) as quick:
        await quick.io.emit("join", {"topic": "t", "group": "g", "inbox": "1" * 32})
        await held.wait()
    async with Recorder(addresses) as consumer:
        await consumer.join("t", "g")
        await consumer.is_ready(*range(10))

        assert len(await bus.topic("t").members("g")) == 1


async def test_groups_that_do_not_come_back_are_waited_for_once(
    bus: Bus, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebus.zmq.stream.RETURN_SECONDS", 0.5)
    await bus.topic("t").create()
    # As a broker leaves it behind that was killed.
    await Audience(bus.link.store).enter("t", "gone")
    async with (
        Broker(bus, **addresses.of_broker),
        PlainConsumer(addresses) as consumer,
        plain_publisher(addresses) as push,
    ):
        await consumer.join("t", "g")
        await push.send(array("t", ["x"], partition=0))
        await consumer.has(1)

    assert await Audience(bus.link.store).enter("t", "next") == {"g"}


async def test_a_group_that_is_quickly_back_is_not_forgotten(bus: Bus) -> None:
    audience = Audience(bus.link.store)
    await audience.enter("t", "g")
    audience.leave("t", "g")
    forgetting = asyncio.create_task(audience.forget("t", "g"))

    await audience.enter("t", "g")
    await forgetting

    assert "g" in await Audience(bus.link.store).enter("t", "other")


@pytest.mark.parametrize(("failure", "told"), [(ZeroDivisionError(), ZeroDivisionError), (None, ServerUnavailable)])
async def test_whoever_runs_a_broker_hears_that_its_management_server_ended(
    bus: Bus,
    addresses: Addresses,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception | None,
    told: type[Exception],
) -> None:
    async def end(_: object) -> None:
        if failure is not None:
            raise failure

    monkeypatch.setattr("onebus.zmq.management._Server.main_loop", end)
    async with Broker(bus, **addresses.of_broker) as broker:
        with pytest.raises(told):
            await asyncio.wait_for(broker.wait(), 20)


async def test_who_sends_far_too_much_at_once_is_cut_off_and_harms_nobody(
    bus: Bus, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebus.zmq.broker.MAX_FRAME_BYTES", 10_000)
    context = zmq.Context()
    async with Broker(bus, **addresses.of_broker), publisher_of(addresses) as publisher:
        push = context.socket(zmq.PUSH)
        push.connect(addresses.publisher)
        push.send(array("t", ["x" * 20_000], partition=0))
        await publisher.send("t", 0, ["y"])

        async def others_are_stored() -> bool:
            # What goes over the connection that is being cut off is lost with it.
            push.send(array("t", ["z"], partition=0))
            return {message.data for message in await bus.topic("t").read(0)} == {"y", "z"}

        await eventually(others_are_stored)
    context.destroy(linger=0)
