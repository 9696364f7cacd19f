import asyncio
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import LeaseLost, StoreUnavailable
from onebus.message import Message
from onebus.objects.queue import Queue
from tests.clock import FakeClock
from tests.eventually import eventually
from tests.objects.conftest import Connect
from tests.objects.hearing import comes_true, errors_of, take, take_data


async def filled(bus: Bus, name: str, texts: str, ttl: float = 10_000) -> Queue:
    queue = bus.queue(name, ttl=ttl)
    await queue.attach()
    await queue.push_many(list(texts))
    return queue


async def next_of(queue: Queue, **options: Any) -> Message:
    """Take one message, whose loop stays where it is."""
    messages = queue.consume(**options)
    _loops.append(messages)
    async with asyncio.timeout(20):
        return await anext(messages)


_loops: list[Any] = []


@pytest.fixture(autouse=True)
def _forget_loops() -> Any:
    yield
    _loops.clear()


# Leases


async def test_a_message_that_is_not_acknowledged_in_time_comes_again(
    timed_bus: Bus, connect: Connect, clock: FakeClock, name: str
) -> None:
    slow = await filled(timed_bus, name, "a")
    other = (await connect(clock=clock)).queue(name)
    await other.attach()
    message = await next_of(slow, lease=60)
    clock.advance(60)
    assert await other.count() == 0

    clock.advance(31)

    (again,) = await take(other, 1, lease=60)
    assert (again.data, message.attempts, again.attempts) == ("a", 1, 2)


async def test_an_acknowledged_message_never_comes_again(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    queue = await filled(timed_bus, name, "ab")
    assert await take_data(queue, 2, lease=60) == ["a", "b"]

    clock.advance(1000)

    assert await queue.count() == 0


async def test_a_lease_can_be_extended(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    queue = await filled(timed_bus, name, "a")
    message = await next_of(queue, lease=60)
    clock.advance(50)

    await message.extend()
    clock.advance(80)
    assert await queue.count() == 0
    await message.extend(500)
    clock.advance(499)
    assert await queue.count() == 0
    clock.advance(2)

    assert await queue.count() == 1
    await queue.stop()


async def test_a_message_is_released_at_once_or_after_a_delay(
    timed_bus: Bus, connect: Connect, clock: FakeClock, name: str
) -> None:
    queue = await filled(timed_bus, name, "ab")
    other = (await connect(clock=clock)).queue(name)
    await other.attach()
    message = await next_of(queue, lease=600)
    await message.release(delay=60)
    assert await take_data(other, 1) == ["b"]
    clock.advance(59)
    assert await other.count() == 0

    clock.advance(2)

    (again,) = await take(other, 1, lease=60)
    assert (again.data, again.attempts) == ("a", 2)


async def test_a_consumer_takes_its_own_released_message_again_when_it_is_time(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "a")
    attempts = []

    async for message in queue.consume(lease=60, max=3):
        attempts.append(message.attempts)
        await message.release(delay=0.05)

    assert attempts == [1, 2, 3]


async def test_what_others_took_meanwhile_cannot_be_settled(
    timed_bus: Bus, connect: Connect, clock: FakeClock, name: str
) -> None:
    slow = await filled(timed_bus, name, "a")
    quick = (await connect(clock=clock)).queue(name)
    await quick.attach()
    errors = errors_of(slow)
    message = await next_of(slow, lease=5)
    clock.advance(8)
    again = await next_of(quick, lease=60)

    with pytest.raises(LeaseLost):
        await message.extend()
    with pytest.raises(LeaseLost):
        await message.release()
    await slow.stop()
    await again.ack()
    await quick.stop()

    assert errors == []
    assert await slow.count() == 0


async def test_the_acknowledgement_of_an_old_delivery_does_not_touch_the_new_one(
    timed_bus: Bus, clock: FakeClock, name: str
) -> None:
    queue = await filled(timed_bus, name, "ab")
    messages = queue.consume(lease=5, prefetch=1)
    old = await anext(messages)
    clock.advance(8)
    new = await anext(messages)
    assert (old.id, old.attempts, new.id, new.attempts) == (1, 1, 1, 2)

    await old.ack()
    assert (await anext(messages)).data == "b"
    await new.ack()
    await queue.stop()

    assert await queue.count() == 1


async def test_what_was_acknowledged_is_settled_while_the_next_message_takes_its_time(
    bus: Bus, other_bus: Bus, name: str
) -> None:
    queue = await filled(bus, name, "abc")
    messages = queue.consume(lease=0.4, prefetch=3)
    for text in "ab":
        message = await anext(messages)
        assert message.data == text
        await message.ack()

    async with other_bus.queue(name) as other:
        # Longer than the lease of the first two, of which nobody asks this consumer meanwhile.
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begun + 0.8:
            assert await other.count() == 0
            await asyncio.sleep(0.02)

    stat = await queue.store.stat(queue._log)
    assert stat is not None
    assert (stat.claimable, stat.held) == (0, 1)
    await queue.stop()
    assert await take_data(queue, 1) == ["c"]


# Dead letters


async def test_a_rejected_message_goes_to_the_dead_letters(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "a")
    await queue.push({"b": 1}, key="k", headers={"h": "1"})
    async for message in queue.consume(lease=60, max=2):
        await message.reject(f"cannot handle {message.id}")

    async with other_bus.queue(name) as other:
        letters = await other.dead.list()
        assert await other.dead.count() == 2
        assert await other.count() == 0
    assert [letter.data for letter in letters] == ["a", {"b": 1}]
    assert [letter.reason for letter in letters] == ["cannot handle 1", "cannot handle 2"]
    assert [(letter.message_id, letter.attempts) for letter in letters] == [(1, 1), (2, 1)]
    assert letters[0].timestamp == pytest.approx(message.timestamp, abs=60)


@pytest.mark.parametrize("options", [{"lease": 60}, {"reliable": True}])
async def test_a_message_that_was_delivered_too_often_goes_to_the_dead_letters(
    bus: Bus, name: str, options: dict[str, Any]
) -> None:
    queue = await filled(bus, name, "ab")
    attempts = []
    for _ in range(3):
        attempts += [
            (message.data, message.attempts) async for message in queue.consume(max=1, max_attempts=3, **options)
        ]

    assert await take_data(queue, 1, max_attempts=3, **options) == ["b"]

    assert attempts == [("a", 1), ("a", 2), ("a", 3)]
    (letter,) = await queue.dead.list()
    assert (letter.data, letter.attempts, letter.message_id) == ("a", 3, 1)
    assert letter.reason == "delivered 3 times and never acknowledged"
    assert await queue.count() == 0


async def test_dead_letters_are_pushed_again_as_they_were(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "ab")
    await queue.push("c", key="k", headers={"h": "1"})
    async for message in queue.consume(lease=60, max=3):
        await message.reject("not now")

    assert await queue.redrive(max=1) == 1
    assert [letter.data for letter in await queue.dead.list()] == ["b", "c"]
    assert await queue.redrive() == 2
    assert await queue.redrive() == 0

    assert await queue.dead.count() == 0
    assert await queue.dead.list() == []
    a, b, c = await take(queue, 3)
    assert [a.data, b.data, c.data] == ["a", "b", "c"]
    assert (a.attempts, dict(a.headers), c.key, dict(c.headers)) == (1, {}, b"k", {"h": "1"})


async def test_letters_that_died_together_are_pushed_again_one_by_one(bus: Bus, name: str) -> None:
    queue = await filled(bus, name, "abcd")
    async for _ in queue.consume(reliable=True, max=4, prefetch=4, max_attempts=1):
        pass
    await queue.push("e")
    assert await take_data(queue, 1, reliable=True, max_attempts=1, prefetch=4) == ["e"]
    assert [letter.data for letter in await queue.dead.list()] == ["a", "b", "c", "d"]

    assert await queue.redrive(max=2) == 2

    assert await queue.dead.count() == 2
    assert [letter.data for letter in await queue.dead.list()] == ["c", "d"]
    assert [letter.data for letter in await queue.dead.list(limit=1)] == ["c"]
    assert await take_data(queue, 2) == ["a", "b"]


async def test_dead_letters_outlive_their_queue_and_bring_it_back_for_its_time(
    timed_bus: Bus, clock: FakeClock, name: str
) -> None:
    queue = await filled(timed_bus, name, "a", ttl=30)
    async for message in queue.consume(lease=60, max=1):
        await message.reject("not now")
    await queue.detach()
    clock.advance(3600)
    assert not await queue.exists()

    assert await queue.redrive() == 1

    assert await queue.ttl() == 30
    async with queue:
        assert await take_data(queue, 1) == ["a"]


async def test_a_store_that_cannot_keep_dead_letters_does_not_end_the_consumer(
    local_bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await filled(local_bus, name, "ab")
    errors = errors_of(queue)
    async for _ in queue.consume(max=1, reliable=True):
        pass

    async def refuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    taken: list[str] = []
    queue.on("message", lambda message: taken.append(message.data))
    with monkeypatch.context() as patched:
        patched.setattr(queue.store, "append", refuse)
        await queue.start(reliable=True, max_attempts=1, prefetch=1)
        await comes_true(lambda: errors)
    await comes_true(lambda: taken == ["b"])

    async def is_buried() -> bool:
        return await queue.dead.count() == 1

    await eventually(is_buried)
    assert queue.is_consuming
    assert {str(error) for error in errors} == {"away"}
    assert [letter.data for letter in await queue.dead.list()] == ["a"]
