"""Sockets that are for those who know a secret."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import zmq
import zmq.asyncio

from onebus import Bus
from onebus.zmq import Broker, server_key
from tests.zmq.addresses import Addresses
from tests.zmq.plain import array
from tests.zmq.recorder import Recorder, publisher_of

SECRET = "correct horse"


@pytest.fixture
async def broker(bus: Bus, addresses: Addresses) -> AsyncIterator[Broker]:
    async with Broker(bus, **addresses.of_broker, secret=SECRET) as broker:
        yield broker


@pytest.fixture
def context() -> "Iterator[zmq.asyncio.Context]":
    context = zmq.asyncio.Context()
    context.linger = 0
    yield context
    context.destroy(linger=0)


async def stored(bus: Bus) -> list[Any]:
    return [message.data for number in range(10) for message in await bus.topic("t").read(number)]


async def test_whoever_knows_the_secret_publishes_and_consumes(broker: Broker, addresses: Addresses, bus: Bus) -> None:
    async with publisher_of(addresses, secret=SECRET) as publisher, Recorder(addresses, secret=SECRET) as consumer:
        await consumer.join("t", "g")
        await consumer.is_ready(*range(10))
        await publisher.send("t", 3, ["hello"])

        assert await consumer.has(1) == {3: ["hello"]}


@pytest.mark.parametrize("options", [{}, {"secret": "wrong"}])
async def test_whoever_does_not_know_it_gets_no_receipt_and_nothing_is_stored(
    broker: Broker, addresses: Addresses, bus: Bus, options: dict[str, str]
) -> None:
    async with publisher_of(addresses, **options) as stranger, publisher_of(addresses, secret=SECRET) as publisher:
        sending = asyncio.create_task(stranger.send("t", 0, ["from a stranger"]))
        for number in range(20):
            await publisher.send("t", 0, [number])

        assert not sending.done()
        assert await stored(bus) == list(range(20))
        sending.cancel()


async def test_a_plain_client_cannot_push_and_hears_nothing(
    broker: Broker, addresses: Addresses, bus: Bus, context: "zmq.asyncio.Context"
) -> None:
    with context.socket(zmq.PUSH) as push, context.socket(zmq.SUB) as sub:
        push.connect(addresses.publisher)
        sub.connect(addresses.consumer)
        sub.subscribe(b"")
        pushing = asyncio.ensure_future(push.send(array("t", ["from a stranger"], partition=0)))
        listening = asyncio.ensure_future(sub.recv_multipart())
        async with publisher_of(addresses, secret=SECRET) as publisher, Recorder(addresses, secret=SECRET) as consumer:
            await consumer.join("t", "g")
            await consumer.is_ready(*range(10))
            for number in range(20):
                await publisher.send("t", 0, [number])
            await consumer.has(20)

        assert await stored(bus) == list(range(20))
        assert not listening.done()
        pushing.cancel()
        listening.cancel()


async def test_a_client_in_any_language_can_connect_with_the_key_of_the_server(
    broker: Broker, addresses: Addresses, bus: Bus, context: "zmq.asyncio.Context"
) -> None:
    with context.socket(zmq.PUSH) as push:
        push.curve_publickey, push.curve_secretkey = zmq.curve_keypair()
        push.curve_serverkey = server_key(SECRET).encode()
        push.connect(addresses.publisher)
        async with Recorder(addresses, secret=SECRET) as consumer:
            await consumer.join("t", "g")
            await consumer.is_ready(*range(10))
            await push.send(array("t", ["hello"], partition=5))

            assert await consumer.has(1) == {5: ["hello"]}


async def test_open_sockets_ask_for_nothing(bus: Bus, addresses: Addresses) -> None:
    async with (
        Broker(bus, **addresses.of_broker, secret=SECRET, open_sockets=True),
        publisher_of(addresses) as publisher,
        Recorder(addresses, secret=SECRET, open_sockets=True) as consumer,
    ):
        await consumer.join("t", "g")
        await consumer.is_ready(*range(10))
        await publisher.send("t", 3, ["hello"])

        assert await consumer.has(1) == {3: ["hello"]}
