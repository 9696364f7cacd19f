"""What becomes of a bus and its queues when servers go and come back, and when processes are killed."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from onebus import Bus
from onebus.errors import StoreUnavailable
from onebus.objects.queue import Queue
from tests.conftest import running
from tests.eventually import eventually
from tests.faults.conftest import AnyServer
from tests.faults.program import running_program
from tests.objects.hearing import Heard, comes_true, errors_of, take, take_data
from tests.services import RedisServer


@pytest.fixture
def name() -> str:
    return f"q-{uuid4().hex}"


@pytest.fixture
def forgetful_redis() -> Iterator[RedisServer]:
    """A Redis that keeps nothing on disk: a restart empties it."""
    with running(RedisServer()) as server:
        yield server


async def is_pushed(queue: Queue, data: Any) -> bool:
    try:
        await queue.push(data)
    except StoreUnavailable:
        return False
    return True


async def test_a_bus_tells_exactly_when_its_server_goes_and_comes_back(
    forgetful_redis: RedisServer,
) -> None:
    server = forgetful_redis
    bus = Bus(server.url, deadline_seconds=1)
    heard = Heard(bus, "online", "offline", "error")
    await bus.connect()
    queue = bus.queue("jobs")
    await queue.attach()

    await asyncio.to_thread(server.stop)
    assert not await is_pushed(queue, "nobody is there")
    await comes_true(lambda: heard.events == ["online", "offline"])
    assert not bus.is_online
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(server.wait_ready)
    await comes_true(lambda: bus.is_online)
    await comes_true(lambda: heard.events == ["online", "offline", "online"])
    await bus.disconnect()

    assert heard.events == ["online", "offline", "online", "offline"]


async def test_a_bus_on_several_servers_is_offline_while_any_of_them_is(forgetful_redis: RedisServer) -> None:
    with running(RedisServer()) as other:
        bus = Bus([forgetful_redis.url, other.url], deadline_seconds=0.5)
        heard = Heard(bus, "online", "offline", "error")
        async with bus:
            queues = [bus.queue(f"q{number}") for number in range(4)]
            for queue in queues:
                await queue.attach()
            await asyncio.to_thread(other.stop)
            for queue in queues:
                await is_pushed(queue, "a")
            await comes_true(lambda: heard.events == ["online", "offline"])

            await asyncio.to_thread(other.start)
            await asyncio.to_thread(other.wait_ready)
            await comes_true(lambda: heard.events == ["online", "offline", "online"])

        assert heard.events == ["online", "offline", "online", "offline"]


async def test_a_consumer_goes_on_after_a_restart_also_on_an_object_that_was_attached_again(
    server: AnyServer, name: str
) -> None:
    async with Bus(server.url, deadline_seconds=5) as bus, Bus(server.url, deadline_seconds=5) as other:
        queue, producer = bus.queue(name), other.queue(name)
        await queue.attach()
        await queue.detach()
        await queue.attach()
        await producer.attach()
        received: list[Any] = []
        queue.on("message", lambda message: received.append(message.data))
        await queue.start()
        await producer.push("before")
        await comes_true(lambda: received == ["before"])

        await asyncio.to_thread(server.restart)

        async def after_is_pushed() -> bool:
            return await is_pushed(producer, "after")

        await eventually(after_is_pushed, deadline_seconds=60)
        await comes_true(lambda: "after" in received)
        assert queue.is_consuming


async def test_an_attached_queue_is_created_again_when_its_server_has_forgotten_it(
    forgetful_redis: RedisServer, name: str
) -> None:
    async with Bus(forgetful_redis.url) as bus, Bus(forgetful_redis.url) as other:
        queue = bus.queue(name, ttl=60)
        await queue.attach()
        await queue.push("forgotten")
        await asyncio.to_thread(forgetful_redis.restart)

        async def exists() -> bool:
            try:
                return await other.queue(name).exists()
            except StoreUnavailable:
                return False

        await eventually(exists)

        async def is_noted() -> bool:
            return bool(await other.queue(name).metadata() == {"ttl": 60.0})

        await eventually(is_noted)
        late = other.queue(name)
        assert await late.attach() is True
        assert await late.ttl() == 60
        assert await queue.push("remembered") == 1
        assert await take_data(late, 1) == ["remembered"]


async def test_a_server_that_forgets_its_scripts_is_told_them_again(redis: RedisServer, name: str) -> None:
    async with Bus(redis.url) as bus, bus.queue(name) as queue:
        errors = errors_of(queue)
        received: list[Any] = []
        queue.on("message", lambda message: received.append(message.data))
        await queue.start()
        for number in range(5):
            await asyncio.to_thread(flush_scripts, redis)
            await queue.push(number)

        await comes_true(lambda: len(received) == 5)

        assert received == [0, 1, 2, 3, 4]
        assert errors == []


def flush_scripts(server: RedisServer) -> None:
    with server.client() as client:
        client.script_flush()


async def test_the_messages_of_a_killed_consumer_come_back_and_those_it_acknowledged_do_not(
    url: str, name: str
) -> None:
    async with Bus(url) as bus, bus.queue(name) as queue:
        await queue.push_many(range(10))
        async with running_program("consume_and_hang", url, name) as doomed:
            await doomed.line("hanging")
            await doomed.kill()

        again = await take(queue, 7, lease=30)

        assert sorted((message.data, message.attempts) for message in again) == [
            (3, 2),
            (4, 2),
            *((number, 1) for number in range(5, 10)),
        ]
        assert await queue.count() == 0


async def test_delayed_messages_survive_a_killed_producer(url: str, name: str) -> None:
    async with running_program("push_delayed", url, name) as producer:
        await producer.line("pushed")
        await producer.kill()

    async with Bus(url) as bus, bus.queue(name) as queue:
        assert await take_data(queue, 3) == ["soonest", "sooner", "soon"]
