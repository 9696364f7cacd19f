"""Feeds while servers are restarted and processes come and go."""

import asyncio
from contextlib import AsyncExitStack

from onebus import Bus
from onebus.errors import StoreUnavailable
from tests.eventually import eventually
from tests.faults.conftest import AnyServer
from tests.faults.program import running_program

CHANNEL = "/chat"


async def test_a_subscriber_misses_nothing_when_the_server_is_stopped_and_killed(server: AnyServer) -> None:
    acknowledged: list[int] = []
    seen: list[tuple[int, int]] = []
    stopped = asyncio.Event()

    async def publish(bus: Bus) -> None:
        number = 0
        while not stopped.is_set():
            number += 1
            try:
                await bus.publish(CHANNEL, number)
            except StoreUnavailable:
                continue
            acknowledged.append(number)

    async def some_more() -> bool:
        return len(acknowledged) > before + 20

    async def all_seen() -> bool:
        return set(acknowledged) <= {number for _, number in seen}

    async with Bus(server.url) as publisher, Bus(server.url) as subscriber:
        await subscriber.subscribe(CHANNEL, lambda message: seen.append((message.message_id, message.data)))
        publishing = asyncio.create_task(publish(publisher))
        for end in (server.stop, server.kill):
            before = len(acknowledged)
            await eventually(some_more)
            await asyncio.to_thread(end)
            server.start()
            before = len(acknowledged)
            await eventually(some_more, deadline_seconds=60)
        stopped.set()
        await publishing
        await eventually(all_seen)

    ids = [message_id for message_id, _ in seen]
    assert ids == list(range(1, len(ids) + 1))


async def test_processes_that_answer_on_a_channel_answer_everything_once(url: str, log: str) -> None:
    answers: list[tuple[str, int]] = []
    async with Bus(url) as bus, AsyncExitStack() as stack:
        await bus.subscribe(f"/{log}/answers", lambda message: answers.append((message.data[0], message.data[1])))
        for number in range(5):
            await bus.publish(f"/{log}/questions", number)
        for _ in range(4):
            program = await stack.enter_async_context(running_program("answer_on_a_channel", url, log))
            await program.line("ready")
        for number in range(5, 10):
            await bus.publish(f"/{log}/questions", number)

        async def all_answered() -> bool:
            return len(answers) >= 40

        await eventually(all_answered)

    names = {name for name, _ in answers}
    assert len(names) == 4
    assert sorted(answers) == sorted((name, number) for name in names for number in range(10))
