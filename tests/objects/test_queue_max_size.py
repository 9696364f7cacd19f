import asyncio

import pytest

from onebus import Bus
from onebus.errors import InvalidArgument, LogFull
from tests.objects.hearing import comes_true, errors_of, take, take_data


async def test_a_full_queue_takes_no_more_until_messages_are_done(bus: Bus, name: str) -> None:
    async with bus.queue(name, max_size=10) as queue:
        results = await asyncio.gather(*(queue.push(number) for number in range(15)), return_exceptions=True)

        assert results[:10] == list(range(1, 11))
        assert [type(result) for result in results[10:]] == [LogFull] * 5
        assert await queue.count() == 10
        with pytest.raises(LogFull):
            await queue.push("still full")
        assert await take_data(queue, 4) == [0, 1, 2, 3]
        results = await asyncio.gather(*(queue.push(number) for number in range(15, 20)), return_exceptions=True)
        assert results[:4] == [11, 12, 13, 14]
        assert isinstance(results[4], LogFull)


async def test_pushes_one_after_the_other_fill_a_queue_as_well(bus: Bus, other_bus: Bus, name: str) -> None:
    async with bus.queue(name, max_size=3) as queue, other_bus.queue(name, max_size=3) as other:
        assert [await queue.push(number) for number in range(3)] == [1, 2, 3]

        for full in (queue, other):
            with pytest.raises(LogFull):
                await full.push("too much")
            with pytest.raises(LogFull):
                await full.push_many(["too", "much"])

        assert await queue.count() == 3


async def test_what_is_held_by_a_consumer_still_fills_the_queue(bus: Bus, name: str) -> None:
    async with bus.queue(name, max_size=2) as queue:
        await queue.push_many(["a", "b"])
        async for message in queue.consume(reliable=True, max=1):
            with pytest.raises(LogFull):
                await queue.push("c")
            await message.ack()
            await queue.ack(message.id)

        assert await queue.push("c") == 3


async def test_a_push_to_a_full_queue_that_nobody_awaits_is_an_error_event(bus: Bus, name: str) -> None:
    async with bus.queue(name, max_size=1) as queue:
        errors = errors_of(queue)
        for number in range(3):
            queue.push(number)

        await comes_true(lambda: errors)

        assert {type(error) for error in errors} == {LogFull}
        assert [message.data for message in await take(queue, 1)] == [0]


@pytest.mark.parametrize("max_size", [0, -1])
async def test_a_size_that_makes_no_sense_is_refused(local_bus: Bus, name: str, max_size: int) -> None:
    with pytest.raises(InvalidArgument, match="max_size"):
        local_bus.queue(name, max_size=max_size)
