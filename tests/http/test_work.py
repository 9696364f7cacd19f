import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest

from onebus import Bus
from onebus.errors import InvalidArgument
from onebus.http import Consumer, HttpMessage, Producer
from onebus.web.queues.settings import QueueSettings
from tests.eventually import eventually
from tests.web.server import WebServer, serving

QUEUE = "jobs"


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    async with Bus(f"memory://{uuid4().hex}") as bus:
        yield bus


@pytest.fixture
async def server(bus: Bus) -> AsyncIterator[WebServer]:
    async with serving(bus, queues=QueueSettings(pending_timeout=10, max_attempts=3)) as server:
        yield server


@asynccontextmanager
async def working(url: str, handler: Any, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    async with Consumer(url, queue=QUEUE) as consumer:
        task = asyncio.create_task(consumer.work(handler, **options))
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def add(url: str, *payloads: Any) -> None:
    async with Producer(url, queue=QUEUE) as producer:
        for payload in payloads:
            await producer.add_new_message(payload)


async def unfinished(bus: Bus) -> int:
    return sum(state.waiting + state.held for state in await bus.queues())


async def is_all_done(bus: Bus) -> bool:
    return await unfinished(bus) == 0


async def test_messages_are_handled_several_at_a_time(bus: Bus, server: WebServer) -> None:
    handled: list[Any] = []
    together = asyncio.Barrier(3)

    async def handle(message: HttpMessage) -> None:
        async with asyncio.timeout(10):
            await together.wait()
        handled.append(message.payload)

    await add(server.url, *range(6))
    async with working(server.url, handle, concurrency=3):
        assert await eventually(lambda: is_all_done(bus))

    assert sorted(handled) == list(range(6))


async def test_a_lease_is_extended_as_long_as_the_handler_runs(bus: Bus, server: WebServer) -> None:
    attempts: list[int] = []
    finish = asyncio.Event()

    async def handle(message: HttpMessage) -> None:
        attempts.append(message.attempts)
        await finish.wait()

    await add(server.url, "slow")
    async with working(server.url, handle, timeout=0.3, concurrency=2):
        await asyncio.sleep(1.0)
        finish.set()
        assert await eventually(lambda: is_all_done(bus))

    assert attempts == [1]


async def test_what_fails_comes_again_until_the_server_has_enough(
    bus: Bus, server: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    async def handle(message: HttpMessage) -> None:
        attempts.append(message.attempts)
        raise ValueError("no")

    await add(server.url, "poison")
    with caplog.at_level(logging.CRITICAL, "onebus"):
        async with working(server.url, handle, retry_delay=0.01):

            async def is_dead() -> bool:
                return [state.dead for state in await bus.queues()] == [1]

            assert await eventually(is_dead)

    assert attempts == [1, 2, 3]


async def test_a_worker_that_is_stopped_finishes_what_it_has_begun(bus: Bus, server: WebServer) -> None:
    has_begun = asyncio.Event()

    async def handle(message: HttpMessage) -> None:
        has_begun.set()
        await asyncio.sleep(0.3)

    await add(server.url, "a")
    async with working(server.url, handle):
        await has_begun.wait()

    assert await is_all_done(bus)


async def test_what_does_not_end_in_time_is_given_back(bus: Bus, server: WebServer) -> None:
    has_begun = asyncio.Event()

    async def handle(message: HttpMessage) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    await add(server.url, "a")
    async with working(server.url, handle, grace=0.05):
        await has_begun.wait()

    assert [(state.waiting, state.held) for state in await bus.queues()] == [(1, 0)]


async def test_settings_that_make_no_sense_are_refused(server: WebServer) -> None:
    async def handle(_: HttpMessage) -> None: ...

    async with Consumer(server.url) as consumer:
        for options in ({"concurrency": 0}, {"timeout": 0.0}, {"grace": -1.0}):
            with pytest.raises(InvalidArgument):
                await consumer.work(handle, **options)


PROGRAM = """
import sys, time
from onebus.http.sync import Consumer

def handle(message):
    print(message.payload, flush=True)
    time.sleep(0.3)

Consumer(sys.argv[1], queue="jobs").work(handle, concurrency=4)
"""


async def test_a_blocking_worker_ends_with_ctrl_c_after_what_it_has_begun(bus: Bus, server: WebServer) -> None:
    await add(server.url, "begun")

    def work() -> tuple[str, int]:
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, server.url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert program.stdout is not None
        line = program.stdout.readline()
        os.kill(program.pid, signal.SIGINT)
        code = program.wait(20)
        program.stdout.close()
        return line.strip(), code

    line, code = await asyncio.to_thread(work)

    assert line == "begun"
    assert code != 0
    assert await is_all_done(bus)
