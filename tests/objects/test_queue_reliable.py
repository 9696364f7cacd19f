import asyncio
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import LeaseLost
from onebus.message import Message
from onebus.objects.queue import Queue
from tests.clock import FakeClock
from tests.objects.conftest import Connect
from tests.objects.hearing import Heard, comes_true, data_of, errors_of, take, take_data


async def filled(bus: Bus, name: str, texts: str) -> Queue:
    queue = bus.queue(name, ttl=10_000)
    await queue.attach()
    await queue.push_many(list(texts))
    return queue


async def take_unacked(queue: Queue, count: int, **options: Any) -> list[Message]:
    async with asyncio.timeout(20):
        return [message async for message in queue.consume(max=count, reliable=True, **options)]


async def test_what_was_not_acknowledged_comes_again_when_consuming_again(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "abcde")
    received: list[tuple[int, str, int]] = []
    stop_at: set[int] = {3}

    async def handle(message: Message) -> None:
        received.append((message.id, message.data, message.attempts))
        if message.id in stop_at:
            await queue.stop()
        else:
            await queue.ack(message.id)

    queue.on("message", handle)
    await queue.start(reliable=True)
    await comes_true(lambda: not queue.is_consuming)
    stop_at = {4}
    await queue.start(reliable=True)
    await comes_true(lambda: not queue.is_consuming)
    await queue.start(reliable=True, last=4)
    await comes_true(lambda: len(received) == 6)
    await queue.stop()

    assert received == [(1, "a", 1), (2, "b", 1), (3, "c", 1), (3, "c", 2), (4, "d", 1), (5, "e", 1)]
    assert await queue.count() == 0
    assert await take_unacked(queue, 0) == []


async def test_an_acknowledgement_returns_when_it_is_stored(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "abc")
    async for message in queue.consume(reliable=True, max=2, prefetch=10):
        async with asyncio.timeout(10):
            await queue.ack(message.id)

        stat = await queue.store.stat(queue._log)
        assert stat is not None
        assert stat.claimable + stat.held == 3 - message.id


async def test_an_acknowledgement_covers_all_before_it(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "abcdef")
    async for message in queue.consume(reliable=True, max=5, prefetch=10):
        if message.id == 3:
            await queue.ack(3)

    async with other_bus.queue(name) as other:
        again = await take(other, 3)

    assert [(message.data, message.attempts) for message in again] == [("d", 2), ("e", 2), ("f", 1)]


async def test_each_message_can_be_acknowledged_by_itself(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "abcdef")
    async for message in queue.consume(reliable=True, max=6):
        if message.data in "bdf":
            await message.ack()

    assert await take_data(queue, 3) == ["a", "c", "e"]


async def test_acknowledging_twice_or_what_is_unknown_does_nothing(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "ab")
    errors = errors_of(queue)
    async for message in queue.consume(reliable=True, max=1):
        await message.ack()
        await message.ack()
        await queue.ack(message.id)
        await queue.ack(message.id)
        await queue.ack(0)
        await queue.ack(1000)
    await queue.ack(2)

    assert errors == []
    assert await take_data(queue, 1) == ["b"]


async def test_messages_up_to_the_last_known_one_are_discarded(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "abcdef")

    assert data_of(await take_unacked(queue, 2, last=4)) == ["e", "f"]

    assert await take_data(queue, 2) == ["e", "f"]
    assert await queue.count() == 0


async def test_reliable_consumers_share_and_acknowledge_only_their_own(bus: Bus, other_bus: Bus, name: str) -> None:
    one = await filled(bus, name, "abcd")
    two = other_bus.queue(name)
    await two.attach()
    held: dict[str, list[str]] = {"one": [], "two": []}
    gate = asyncio.Event()
    for number, queue in (("one", one), ("two", two)):
        queue.on("message", lambda message, number=number: held[number].append(message.data))
        queue.on("message", lambda _: gate.wait())
    await one.start(reliable=True, max=2, prefetch=1)
    await comes_true(lambda: held["one"])

    await two.start(reliable=True, prefetch=1)
    await comes_true(lambda: held["two"])
    await two.ack(1000)
    await one.stop()
    await two.stop()
    gate.set()

    acked = held["two"][0]
    assert acked not in held["one"]
    again = [message.data for message in await take(one, await one.count())]
    assert sorted([acked, *again]) == ["a", "b", "c", "d"]


async def test_what_is_held_is_with_nobody_else(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "abc")
    async with other_bus.queue(name) as other:
        async for message in queue.consume(reliable=True, max=1):
            assert await take_data(other, 2) == ["b", "c"]
            assert await other.count() == 0
            await message.release()

        assert await take_data(other, 1) == ["a"]


async def test_the_messages_of_a_killed_consumer_come_back(
    timed_bus: Bus, connect: Connect, clock: FakeClock, name: str
) -> None:
    doomed = await filled(timed_bus, name, "abc")
    heir = (await connect(clock=clock)).queue(name)
    await heir.attach()
    messages = doomed.consume(reliable=True, prefetch=3)
    await anext(messages)
    assert doomed._consumer is not None
    beating = doomed._consumer._beating
    assert beating is not None
    beating.cancel()

    assert await heir.count() == 0
    clock.advance(30)

    again = await take(heir, 3, reliable=True)
    assert [(message.data, message.attempts) for message in again] == [("a", 2), ("b", 2), ("c", 2)]
    await doomed.stop()
    with pytest.raises(StopAsyncIteration):
        await anext(messages)


async def test_a_late_acknowledgement_of_what_others_took_is_an_error_event(
    timed_bus: Bus, connect: Connect, clock: FakeClock, name: str
) -> None:
    slow = await filled(timed_bus, name, "ab")
    quick = (await connect(clock=clock)).queue(name)
    await quick.attach()
    errors = errors_of(slow)
    async for message in slow.consume(reliable=True, max=1):
        clock.advance(31)
        assert await take_data(quick, 2, reliable=True) == ["a", "b"]
        await slow.ack(message.id)

    assert [type(error) for error in errors] == [LeaseLost]
    assert "messages 1 of" in str(errors[0])


async def test_a_released_message_comes_back_before_newer_ones(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "abc")
    received: list[tuple[str, int]] = []

    async for message in queue.consume(reliable=True, max=4, prefetch=1):
        received.append((message.data, message.attempts))
        if len(received) == 1:
            await message.release()
            with pytest.raises(LeaseLost):
                await message.release()
        else:
            await message.ack()

    assert received == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]


async def test_a_message_that_outlived_its_consumer_cannot_be_settled(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "a")
    (message,) = await take_unacked(queue, 1)

    for call in (message.ack(), message.release(), message.extend(), message.reject("late")):
        with pytest.raises(LeaseLost):
            await call

    assert await take_data(queue, 1) == ["a"]


async def test_an_idle_consumer_settles_what_was_acknowledged(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "ab")
    queue.on("message", lambda message: message.ack())
    await queue.start(reliable=True)
    await comes_true(lambda: queue.consumed == 2)
    store, log = queue.store, queue._log

    async def held() -> int:
        stat = await store.stat(log)
        assert stat is not None
        return stat.claimable + stat.held

    async with asyncio.timeout(10):
        while await held():
            await asyncio.sleep(0.01)
    assert queue.is_consuming


async def test_a_consumer_goes_on_after_a_flush(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "abc")
    heard = Heard(queue, "message")
    await queue.start(reliable=True)
    await comes_true(lambda: len(heard.events) == 3)
    await queue.flush()

    await queue.push("d")

    await comes_true(lambda: len(heard.events) == 4)
    assert heard.events[-1][1].data == "d"
