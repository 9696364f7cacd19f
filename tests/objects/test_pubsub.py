import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import InvalidName, NotConnected, NotSerializable, PayloadTooLarge, SignalsMissed, StoreUnavailable
from onebus.objects.places import place_of_object
from onebus.objects.pubsub import PubSub
from onebus.stores.switchboard import MAX_WAITING_SIGNALS
from tests.backings import Backing
from tests.conftest import running
from tests.eventually import eventually
from tests.objects.hearing import Heard, comes_true
from tests.services import RedisServer


def received_by(pubsub: PubSub) -> list[Any]:
    received: list[Any] = []
    pubsub.on("message", received.append)
    return received


async def subscriber(bus: Bus, name: str) -> tuple[PubSub, list[Any]]:
    pubsub = bus.pubsub(name)
    received = received_by(pubsub)
    await pubsub.subscribe()
    return pubsub, received


async def test_publishing_tells_how_many_clients_receive(bus: Bus, other_bus: Bus, name: str) -> None:
    publisher = bus.pubsub(name)
    assert await publisher.publish("to nobody") == 0

    _, mine = await subscriber(bus, name)
    assert await publisher.publish("to one") == 1
    _, theirs = await subscriber(other_bus, name)
    assert await publisher.publish("to two") == 2

    await comes_true(lambda: len(mine) == 2 and "to two" in theirs)
    assert mine == ["to one", "to two"]


async def test_subscribers_of_one_bus_share_a_subscription_and_all_receive(bus: Bus, other_bus: Bus, name: str) -> None:
    first, received_by_first = await subscriber(bus, name)
    _, received_by_second = await subscriber(bus, name)
    publisher = other_bus.pubsub(name)

    assert [await publisher.publish(number) for number in (1, 2)] == [1, 1]
    await comes_true(lambda: len(received_by_first) == len(received_by_second) == 2)
    await first.unsubscribe()

    assert await publisher.publish(3) == 1
    await comes_true(lambda: len(received_by_second) == 3)
    assert received_by_second == [1, 2, 3]
    assert received_by_first == [1, 2]


async def test_a_subscriber_tells_what_happens_to_it(bus: Bus, other_bus: Bus, name: str) -> None:
    pubsub = bus.pubsub(name)
    heard = Heard(pubsub, "subscribed", "unsubscribed", "message", "error")
    assert not pubsub.is_subscribed

    for _ in range(2):
        await pubsub.subscribe()
        assert pubsub.is_subscribed
    await other_bus.pubsub(name).publish("hello")
    await heard.until("subscribed", ("message", "hello"))
    for _ in range(2):
        await pubsub.unsubscribe()
        assert not pubsub.is_subscribed
    await pubsub.subscribe()

    assert heard.events == ["subscribed", ("message", "hello"), "unsubscribed", "subscribed"]


async def test_subscribing_twice_at_once_subscribes_once(bus: Bus, name: str) -> None:
    pubsub = bus.pubsub(name)
    heard = Heard(pubsub, "subscribed", "message")

    await asyncio.gather(pubsub.subscribe(), pubsub.subscribe())
    await pubsub.publish("hello")

    await heard.until("subscribed", ("message", "hello"))


async def test_data_comes_as_what_it_was(bus: Bus, other_bus: Bus, name: str) -> None:
    published = ["text ✓", b"\0\xff bytes", {"json": [1, 2.5, None, True]}, 7, None, [], "", b"", "x" * 20_000]
    _, received = await subscriber(other_bus, name)

    for data in published:
        await bus.pubsub(name).publish(data)

    await comes_true(lambda: len(received) == len(published))
    assert received == published
    assert [type(data) for data in received] == [type(data) for data in published]


async def test_whoever_unsubscribed_or_comes_later_receives_nothing(
    backing: Backing, bus: Bus, other_bus: Bus, name: str
) -> None:
    if backing.kind == "redis-cluster":
        pytest.skip("the nodes of a cluster tell each other in their own time, so somebody may just be in time")
    pubsub, received = await subscriber(bus, name)
    publisher = other_bus.pubsub(name)
    await publisher.publish("while subscribed")
    await comes_true(lambda: received)
    await pubsub.unsubscribe()

    async def reaches_nobody() -> bool:
        return await publisher.publish("while unsubscribed") == 0

    await eventually(reaches_nobody)
    await pubsub.subscribe()
    await publisher.publish("subscribed again")

    await comes_true(lambda: len(received) == 2)
    assert received == ["while subscribed", "subscribed again"]


async def test_names_do_not_mix(bus: Bus, other_bus: Bus, name: str) -> None:
    _, received = await subscriber(bus, name)
    other, _ = await subscriber(bus, f"{name}-other")

    assert await other_bus.pubsub(f"{name}-other").publish("for others") == 1
    assert await other_bus.pubsub(name).publish("for me") == 1

    await comes_true(lambda: received)
    assert received == ["for me"]
    assert other.is_subscribed


async def test_messages_are_iterated_until_the_loop_is_left(bus: Bus, other_bus: Bus, name: str) -> None:
    pubsub, publisher = bus.pubsub(name), other_bus.pubsub(name)

    async def publish_numbers() -> None:
        number = 0
        while True:
            number += await publisher.publish(number)
            await asyncio.sleep(0)

    publishing = asyncio.create_task(publish_numbers())
    received: list[Any] = []
    async with asyncio.timeout(20), aclosing(pubsub.messages()) as messages:
        async for data in messages:
            received.append(data)
            if len(received) == 5:
                break
    publishing.cancel()

    assert received == list(range(received[0], received[0] + 5))
    assert not pubsub.is_subscribed

    async def reaches_nobody() -> bool:
        return await publisher.publish("left") == 0

    await eventually(reaches_nobody)


async def test_a_loop_over_messages_ends_when_the_bus_disconnects(bus: Bus, name: str) -> None:
    async def listen() -> list[Any]:
        return [data async for data in bus.pubsub(name).messages()]

    listening = asyncio.create_task(listen())

    async def is_heard() -> bool:
        return await bus.pubsub(name).publish("hello") == 1

    await eventually(is_heard)

    await bus.disconnect()

    async with asyncio.timeout(10):
        assert set(await listening) <= {"hello"}


async def test_a_loop_over_messages_that_is_too_slow_is_told(local_bus: Bus, name: str) -> None:
    switchboard = local_bus.link.store.switchboard
    async with aclosing(local_bus.pubsub(name).messages()) as messages:
        first = asyncio.ensure_future(anext(messages))
        await comes_true(lambda: switchboard.heard_signals)
        await local_bus.pubsub(name).publish("first")
        assert await first == "first"

        for _ in range(MAX_WAITING_SIGNALS + 1):
            switchboard.deliver(place_of_object("pubsub", name), b"\x00")

        with pytest.raises(SignalsMissed):
            await anext(messages)


async def test_a_bus_that_disconnects_unsubscribes(bus: Bus, other_bus: Bus, name: str) -> None:
    pubsub = bus.pubsub(name)
    heard = Heard(pubsub, "subscribed", "unsubscribed", "message")
    await pubsub.subscribe()

    await bus.disconnect()

    assert heard.events == ["subscribed", "unsubscribed"]
    assert await other_bus.pubsub(name).publish("too late") == 0
    with pytest.raises(NotConnected):
        await pubsub.publish("not connected")
    await bus.connect()
    await pubsub.subscribe()
    assert await other_bus.pubsub(name).publish("again") == 1
    await heard.until("subscribed", "unsubscribed", "subscribed", ("message", "again"))


async def test_a_handler_may_unsubscribe(bus: Bus, name: str) -> None:
    pubsub, received = await subscriber(bus, name)
    heard = Heard(pubsub, "unsubscribed")
    pubsub.once("message", lambda data: pubsub.unsubscribe())

    await pubsub.publish("first")

    await heard.until("unsubscribed")
    assert not pubsub.is_subscribed
    await pubsub.subscribe()
    await pubsub.publish("last")
    await comes_true(lambda: len(received) == 2)
    assert received == ["first", "last"]


async def test_a_handler_may_disconnect_the_bus(bus: Bus, name: str) -> None:
    pubsub, _ = await subscriber(bus, name)
    left = Heard(bus, "offline")
    pubsub.on("message", lambda data: bus.disconnect())

    await pubsub.publish("go home")

    await left.until("offline")
    assert not pubsub.is_subscribed


async def test_a_subscriber_survives_what_it_cannot_understand(bus: Bus, name: str) -> None:
    pubsub, received = await subscriber(bus, name)
    heard = Heard(pubsub, "error")

    for payload in (b"", b"\xffunknown", b"\x02{not json"):
        await bus.link.store.signal(place_of_object("pubsub", name), payload)
    await pubsub.publish("good")

    await comes_true(lambda: received)
    assert received == ["good"]
    assert len(heard.events) == 3


async def test_what_cannot_be_sent_is_refused(name: str) -> None:
    async with Bus(f"memory://{name}", max_message_bytes=1000) as bus:
        pubsub, received = await subscriber(bus, name)

        with pytest.raises(NotSerializable):
            await pubsub.publish(object())
        with pytest.raises(PayloadTooLarge):
            await pubsub.publish("x" * 1001)
        await pubsub.publish("x" * 1000)

        await comes_true(lambda: received)
        assert received == ["x" * 1000]


@pytest.mark.parametrize("bad", ["", "a|b", "new\nline", "x" * 300])
async def test_bad_names_are_refused(local_bus: Bus, bad: str) -> None:
    with pytest.raises(InvalidName):
        local_bus.pubsub(bad)


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that the test may restart."""
    with running(RedisServer()) as server:
        yield server


@pytest.mark.xdist_group("redis")
async def test_each_message_comes_once_after_the_server_was_restarted(own_redis: RedisServer, name: str) -> None:
    async with Bus(own_redis.url) as bus, Bus(own_redis.url) as other_bus:
        _, first = await subscriber(bus, name)
        _, second = await subscriber(bus, name)
        publisher = other_bus.pubsub(name)
        await publisher.publish("before")
        for round_number in range(2):
            await asyncio.to_thread(own_redis.restart)

            async def is_heard(text: str = f"back {round_number}") -> bool:
                try:
                    return await publisher.publish(text) == 1
                except StoreUnavailable:
                    return False

            await eventually(is_heard)
        for number in range(10):
            assert await publisher.publish(number) == 1

        await comes_true(lambda: 9 in first and 9 in second)

    assert first == second == ["before", "back 0", "back 1", *range(10)]
