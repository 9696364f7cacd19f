import asyncio

import pytest

from onebus import Bus
from onebus.errors import InvalidName
from tests.clock import FakeClock
from tests.objects.hearing import take_data


async def test_a_named_push_is_stored_once(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue, other_bus.queue(name) as other:
        assert await queue.push("a", message_id="order-1") == 1
        assert await queue.push("b", message_id="order-2") == 2

        assert await queue.push("a again", message_id="order-1") == 1
        assert await other.push("a again", message_id="order-1") == 1

        assert await other.count() == 2
        assert await take_data(other, 2) == ["a", "b"]
        assert await queue.push("a after all", message_id="order-1") == 1
        assert await queue.count() == 0


async def test_of_pushes_with_one_name_at_the_same_time_one_is_stored(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.queue(name) as queue, other_bus.queue(name) as other:
        ids = await asyncio.gather(
            *(one.push(number, message_id="order") for number in range(10) for one in (queue, other))
        )

        assert ids == [1] * 20
        assert await queue.count() == 1


async def test_a_name_may_be_used_again_after_its_time(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    async with timed_bus.queue(name) as queue:
        await queue.push("a", message_id="order", once_for=60)
        clock.advance(25)
        assert await queue.push("b", message_id="order", once_for=60) == 1
        await queue.detach()
        await queue.attach()
        clock.advance(25)
        await queue.detach()
        await queue.attach()
        clock.advance(11)

        assert await queue.push("c", message_id="order", once_for=60) == 2


async def test_named_pushes_that_nobody_awaits_are_stored_before_the_queue_is_left(
    bus: Bus, other_bus: Bus, name: str
) -> None:
    async with bus.queue(name) as queue:
        for number in range(20):
            queue.push(number % 10, message_id=f"order-{number % 10}")

    async with other_bus.queue(name) as rest:
        assert await rest.count() == 10
        assert sorted(await take_data(rest, 10)) == list(range(10))


async def test_an_early_named_push_is_stored_once_too(bus: Bus, other_bus: Bus, name: str) -> None:
    early = bus.queue(name)
    pushed = early.push("early", message_id="order")
    async with other_bus.queue(name) as other:
        assert await other.push("first", message_id="order") == 1

        await early.attach()

        assert await pushed == 1
        assert await take_data(other, 1) == ["first"]
        assert await other.count() == 0


async def test_a_named_push_may_be_delayed(timed_bus: Bus, clock: FakeClock, name: str) -> None:
    async with timed_bus.queue(name) as queue:
        for _ in range(3):
            await queue.push("later", delay=5, message_id="order")
        clock.advance(6)

        assert await take_data(queue, 1) == ["later"]
        assert await queue.count() == 0


@pytest.mark.parametrize("message_id", ["x" * 300, "a\nb"])
async def test_a_name_that_no_store_can_keep_is_refused_at_once(local_bus: Bus, name: str, message_id: str) -> None:
    async with local_bus.queue(name) as queue:
        with pytest.raises(InvalidName):
            queue.push("a", message_id=message_id)
