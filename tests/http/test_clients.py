import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from onebus import Bus
from onebus.errors import RequestFailed, ServerUnavailable
from onebus.http import Consumer, Producer, sync
from onebus.web.queues.settings import QueueSettings
from tests.services.port import free_port
from tests.web.server import serving


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    async with Bus(f"memory://{uuid4().hex}") as bus:
        yield bus


@pytest.fixture
async def url(bus: Bus) -> AsyncIterator[str]:
    async with serving(bus, queues=QueueSettings(pending_timeout=10)) as server:
        yield server.url


QUEUES = pytest.mark.parametrize("queue", [None, "jobs"])


@QUEUES
async def test_a_message_goes_from_a_producer_to_a_consumer(url: str, queue: str | None) -> None:
    async with Producer(url, queue=queue) as producer, Consumer(url, queue=queue) as consumer:
        assert await producer.add_new_message("hello") == 1

        message = await consumer.get_next_message()

        assert message is not None
        assert (message.id, message.payload) == (1, "hello")
        assert await consumer.get_next_message() is None
        assert await consumer.notify_processed(1)
        assert not await consumer.notify_processed(7)


@QUEUES
async def test_blocking_code_has_the_same(url: str, queue: str | None) -> None:
    def talk() -> list[Any]:
        with sync.Producer(url, queue=queue) as producer, sync.Consumer(url, queue=queue) as consumer:
            added = producer.add_new_message("hello")
            message = consumer.get_next_message()
            assert message is not None
            return [added, message.payload, consumer.notify_processed(message.id), consumer.get_next_message()]

    assert await asyncio.to_thread(talk) == [1, "hello", True, None]


async def test_a_queue_with_a_name_carries_what_json_can_say_and_is_waited_for(url: str, bus: Bus) -> None:
    async with Producer(url, queue="a b/c".replace("/", ".")) as producer, Consumer(url, queue="a b.c") as consumer:
        waiting = asyncio.create_task(consumer.get_next_message(wait=30))
        await asyncio.sleep(0.05)

        await producer.add_new_message({"a": [1, None]})

        message = await waiting
        assert message is not None
        assert (message.payload, message.attempts) == ({"a": [1, None]}, 1)
        async with bus.queue("a b.c") as queue:
            await queue.push(b"\xff")
        taken = await consumer.get_next_message()
        assert taken is not None
        assert taken.payload == b"\xff"


async def test_who_took_too_long_is_told(url: str) -> None:
    async with Producer(url) as producer, Consumer(url) as consumer:
        await producer.add_new_message("slow")
        message = await consumer.get_next_message(timeout=0.05)
        assert message is not None

        while await consumer.get_next_message() is None:
            await asyncio.sleep(0.01)
        await consumer.notify_processed(message.id)

        assert not await consumer.notify_processed(message.id)


async def test_what_the_server_refuses_is_an_error_with_its_code(url: str) -> None:
    async with Producer(url) as producer, Producer(url, queue="a|b") as other:
        with pytest.raises(RequestFailed) as refused:
            await producer.add_new_message(["not", "text"])
        assert refused.value.remote_code == "invalid_argument"
        with pytest.raises(RequestFailed) as refused:
            await other.add_new_message("x")
        assert refused.value.remote_code == "invalid_name"


async def test_a_server_that_is_not_there_is_an_error_that_may_pass(url: str) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    async with Producer(nowhere) as producer:
        with pytest.raises(ServerUnavailable):
            await producer.add_new_message("x")

    def blocking() -> None:
        with sync.Producer(nowhere) as producer:
            producer.add_new_message("x")

    with pytest.raises(ServerUnavailable):
        await asyncio.to_thread(blocking)
