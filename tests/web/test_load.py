"""Many clients that come back again and again while a lot is published."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onebus import Bus
from onebus.objects.feeds.limits import FeedLimits
from onebus.web import FeedSettings
from onebus.web.wire.connection import Connection
from tests.backings import Backing
from tests.conftest import running
from tests.services import OnebusServer
from tests.web.exchange import Reply
from tests.web.server import WebServer, serving

CLIENTS = 20
MESSAGES_PER_SECOND = 400
INTERVAL_SECONDS = 0.2

Ask = Callable[[int], AbstractAsyncContextManager[Reply]]
"""Polls for what follows an id."""


async def follow(ask: Ask, count: int) -> list[int]:
    """Poll until the last message has come, and return the ids of all messages in the order of their arrival."""
    got: list[int] = []
    while not got or got[-1] < count:
        async with ask(got[-1] if got else 0) as reply:
            await reply.begin()
            if "transfer-encoding" in reply.headers:
                while chunk := await reply.chunk():
                    got += _ids(chunk.removesuffix(b"\r\n|\r\n"))
            else:
                got += _ids((await reply.whole()).body)
    return got


def _ids(array: bytes) -> list[int]:
    messages = json.loads(array)
    assert all(message["message_id"] == message["data"] for message in messages)
    return [message["message_id"] for message in messages]


async def publish(bus: Bus, channel: str, count: int) -> None:
    """Publish at an even rate, as far as the machine can."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    for number in range(1, count + 1):
        bus.publish(channel, number)
        await asyncio.sleep(start + number / MESSAGES_PER_SECOND - loop.time())


async def ids_of_clients(ask: Ask, bus: Bus, channel: str, count: int) -> list[list[int]]:
    """Return what each of many clients got while messages were published."""
    clients = [asyncio.create_task(follow(ask, count)) for _ in range(CLIENTS)]
    try:
        await publish(bus, channel, count)
        async with asyncio.timeout(60):
            return await asyncio.gather(*clients)
    finally:
        for client in clients:
            client.cancel()


@pytest.mark.parametrize(
    "backing", [pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in ("memory", "redis")], indirect=True
)
@pytest.mark.parametrize(
    ("is_streaming", "seconds", "http"),
    [(True, 5, Connection), (True, 3, HttpToolsProtocol), (False, 3, Connection)],
    ids=["streaming", "streaming-without-lanes", "long-polling"],
)
async def test_no_client_misses_a_message_or_gets_one_twice(
    backing: Backing, chat: str, is_streaming: bool, seconds: int, http: type[asyncio.Protocol]
) -> None:
    count = seconds * MESSAGES_PER_SECOND
    settings = FeedSettings(long_polling_interval=INTERVAL_SECONDS)

    async with (
        Bus(backing.url, feed_limits=FeedLimits(max_backlog_size=count)) as bus,
        serving(bus, settings, http=http) as web,
    ):

        def ask(last_id: int) -> AbstractAsyncContextManager[Reply]:
            return web.poll({chat: last_id}) if is_streaming else web.long_poll({chat: last_id})

        got = await ids_of_clients(ask, bus, chat, count)

    assert all(ids == list(range(1, count + 1)) for ids in got)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in ("sqlite", "redis")]
)
async def test_clients_of_one_process_get_everything_that_is_published_in_another(
    kind: str, chat: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/bus.db" if kind == "sqlite" else request.getfixturevalue("redis").url
    with (
        running(OnebusServer(url)) as here,
        running(OnebusServer(url, "--long-polling-interval", str(INTERVAL_SECONDS))) as elsewhere,
    ):
        publisher, reader = WebServer(here.port), WebServer(elsewhere.port)
        clients = [asyncio.create_task(follow(lambda last_id: reader.poll({chat: last_id}), 500)) for _ in range(4)]
        for first in range(1, 501, 5):
            several = [{"channel": chat, "data": number} for number in range(first, first + 5)]
            assert (await publisher.post_json("/message-bus/broadcast", several)).status == 200
        got = await asyncio.gather(*clients)

    assert all(ids == list(range(1, 501)) for ids in got)
