import asyncio
from collections.abc import Iterator

import pytest

from onebus import Bus
from onebus.errors import NoOneServes, RequestFailed, RequestTimedOut, StoreUnavailable
from tests.conftest import running
from tests.eventually import eventually
from tests.objects.hearing import Heard, comes_true, errors_of
from tests.services import RedisServer

pytestmark = pytest.mark.xdist_group("redis")


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that the test may stop."""
    with running(RedisServer(append_only=True)) as server:
        yield server


async def test_a_bus_disconnects_even_if_its_store_is_away(own_redis: RedisServer, name: str) -> None:
    bus = Bus(own_redis.url, deadline_seconds=0.2)
    errors = errors_of(bus)
    await bus.connect()
    channel, pubsub, server, client = bus.channel(name), bus.pubsub(name), bus.service(name), bus.service(name)
    persisted = bus.persistify(name, {"foo": 1}, ["foo"])
    for one in (channel, pubsub, server, client):
        one.on("error", errors.append)
    asked = asyncio.Event()

    async def never_answer(data: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    await channel.connect()
    await pubsub.subscribe()
    await persisted.save()
    await persisted.persist(10)
    await server.serve(never_answer, concurrency=1)
    requests = [asyncio.create_task(client.request(number, timeout=100)) for number in range(3)]
    await asked.wait()
    await asyncio.to_thread(own_redis.stop)

    async with asyncio.timeout(20):
        await bus.disconnect()
        outcomes = await asyncio.gather(*requests, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} <= {RequestFailed, StoreUnavailable}
    assert not any((channel.is_attached, pubsub.is_subscribed, server.is_serving))
    assert any(isinstance(error, StoreUnavailable) for error in errors)


async def test_a_channel_and_a_service_go_on_when_their_store_is_back(own_redis: RedisServer, name: str) -> None:
    async with Bus(own_redis.url) as bus, Bus(own_redis.url) as other_bus:
        received: list[object] = []
        client, server = bus.channel(name), other_bus.channel(name)
        heard = Heard(server, "connect", "remote:connect", "remote:disconnect", "disconnect")
        server.on("message", lambda message: received.append(message.data))
        for one in (client, server):
            errors_of(one)
        await server.listen()
        await client.connect()
        service, asking = bus.service(name), other_bus.service(name)
        errors_of(service)
        await service.serve(lambda data: data)
        await client.send("before")
        assert await asking.request("before") == "before"
        await comes_true(lambda: received == ["before"])

        await asyncio.to_thread(own_redis.restart)

        async def is_sent() -> bool:
            try:
                await client.send("after")
            except StoreUnavailable:
                return False
            return True

        async def is_answered() -> bool:
            try:
                return bool(await asking.request("after", timeout=1) == "after")
            except (StoreUnavailable, NoOneServes, RequestTimedOut):
                return False

        await eventually(is_sent)
        await eventually(is_answered)
        await comes_true(lambda: received[-1] == "after")
        assert heard.events == ["connect", "remote:connect"]
