"""Looking into queues without taking messages out of them, and taking them without waiting."""

import time
from contextlib import aclosing
from pathlib import Path

import pytest

from onebus import Bus, Message
from onebus.objects.queue import Queue
from onebus.objects.queues import QueueState


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bus.db"


async def all_of(queue: Queue, *, remove: bool = True, index: int = 0) -> list[str]:
    return [message.data async for message in queue.consume(remove=remove, index=index, wait=False)]


def texts(messages: list[Message]) -> list[str]:
    return [message.data for message in messages]


async def test_without_waiting_the_loop_ends_when_the_queue_is_empty(url: str) -> None:
    async with Bus(url) as bus, bus.queue("jobs") as queue:
        await queue.push_many(["1", "2", "3"])

        assert await all_of(queue) == ["1", "2", "3"]
        assert await all_of(queue) == []


async def test_replaying_shows_no_message_that_was_consumed(url: str) -> None:
    async with Bus(url) as bus, bus.queue("jobs") as queue:
        await queue.push_many(["1", "2", "3", "4", "5"])
        async for message in queue.consume(max=4, reliable=True):
            if message.data in "14":
                await message.ack()

        assert await all_of(queue, remove=False) == ["2", "3", "5"]
        assert await all_of(queue, remove=False, index=1) == ["3", "5"]
        assert await all_of(queue, remove=False, index=-2) == ["3", "5"]
        assert await all_of(queue, remove=False, index=-9) == ["2", "3", "5"]


async def test_replaying_skips_messages_that_are_still_to_come(url: str) -> None:
    async with Bus(url) as bus, bus.queue("jobs") as queue:
        await queue.push_many(["1", "2"])
        async with aclosing(queue.consume(remove=False, index=3)) as messages:
            await queue.push_many(["3", "4"])

            assert (await anext(messages)).data == "4"


async def test_peek_returns_what_would_be_consumed_next(url: str) -> None:
    async with Bus(url) as bus, bus.queue("jobs") as queue, Bus(url) as other, other.queue("jobs") as looking:
        await queue.push_many(["1", "2", "3", "4"])
        async with aclosing(queue.consume(reliable=True, prefetch=1)) as messages:
            await (await anext(messages)).ack()
            await anext(messages)

            assert texts(await looking.peek(1)) == ["3"]
        assert texts(await looking.peek()) == ["2", "3", "4"]
        assert await looking.count() == 3


@pytest.mark.parametrize("reliable", [False, True])
async def test_a_message_that_is_put_back_is_the_next_one_again(url: str, reliable: bool) -> None:
    async with Bus(url) as bus, bus.queue("jobs") as queue:
        await queue.push_many(["1", "2", "3"])
        async with aclosing(queue.consume(reliable=reliable)) as messages:
            await (await anext(messages)).ack()
            queue.put_back(await anext(messages))

        left = [(message.data, message.attempts) async for message in queue.consume(wait=False)]
        assert left == [("2", 1), ("3", 1)]
        assert queue.consumed == 3


async def test_a_backlog_of_large_messages_is_consumed_without_a_pause(url: str) -> None:
    async with Bus(url) as bus, bus.queue("jobs") as queue:
        await queue.push_many([b"x" * 100_000 for _ in range(100)])

        began = time.monotonic()
        seen = [message.id async for message in queue.consume(max=100)]

        assert len(seen) == 100
        assert time.monotonic() - began < 4, "ten fetches with a second between them take longer"


async def test_the_bus_lists_its_queues(url: str) -> None:
    async with Bus(url) as bus, bus.queue("a", ttl=60) as first, bus.queue("b"), bus.queue("ab"):
        await first.push_many(["1", "2", "3"])
        await first.push("later", delay=100)
        async with aclosing(first.consume(reliable=True, prefetch=1)) as messages:
            await (await anext(messages)).reject("no")
            await anext(messages)

            assert await bus.queues("a") == [
                QueueState("a", waiting=1, held=1, dead=1, delayed=1, ttl=60.0),
                QueueState("ab", waiting=0, held=0, dead=0, delayed=0, ttl=30.0),
            ]
        assert [state.name for state in await bus.queues()] == ["a", "ab", "b"]


async def test_dead_letters_that_were_redriven_are_listed_no_more(url: str) -> None:
    async with Bus(url) as bus, bus.queue("jobs") as queue:
        await queue.push_many(["1", "2", "3"])
        dead: list[Message] = [message async for message in queue.consume(max=3)]
        await queue.dead.add(dead, "no")

        assert await queue.redrive(2) == 2

        assert [letter.data for letter in await queue.dead.list()] == ["3"]
