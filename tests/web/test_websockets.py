"""Websockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from onebus import Bus
from onebus.web import Visitor
from onebus.web.feeds import socket as sockets
from tests.backings import on_async_stores
from tests.web.conftest import OpenDoor
from tests.web.server import FeedServer


class Client:
    """Talks JSON over a websocket."""

    def __init__(self, line: ClientConnection) -> None:
        self.line = line

    async def say(self, **command: object) -> None:
        await self.line.send(json.dumps(command))

    async def hear(self) -> list[Any]:
        """Return the next array."""
        async with asyncio.timeout(20):
            said: list[Any] = json.loads(await self.line.recv())
            return said

    async def data(self) -> list[Any]:
        """Return the data of the messages in the next array that has some."""
        while not (data := [one["data"] for one in await self.hear() if one["message_id"] > 0]):
            pass
        return data

    async def closed(self) -> tuple[int, str]:
        """Return with which code and reason the server closes."""
        async with asyncio.timeout(20):
            await self.line.wait_closed()
        assert self.line.close_code is not None
        return self.line.close_code, self.line.close_reason or ""


@asynccontextmanager
async def websocket(web: FeedServer, client: str = "me", **options: Any) -> AsyncIterator[Client]:
    async with connect(f"ws://127.0.0.1:{web.port}/message-bus/{client}/ws", **options) as line:
        yield Client(line)


def refusal(error: InvalidStatus) -> tuple[int, str]:
    return error.response.status_code, json.loads(error.response.body or b"{}")["error"]["code"]


@on_async_stores
async def test_a_websocket_follows_channels_leaves_them_and_follows_them_again(
    bus: Bus, web: FeedServer, chat: str
) -> None:
    other = f"{chat}/other"
    await bus.publish(chat, "old")

    async with websocket(web) as client:
        await client.say(channels={chat: 0})
        assert await client.data() == ["old"]
        await client.say(channels={other: -1})
        (*_, status) = await client.hear()
        assert status["data"] == {other: 0}
        await bus.publish(other, "hello")
        assert await client.data() == ["hello"]

        await client.say(leave=[chat, "/never/followed"])
        await client.say(channels={other: 0})
        assert await client.data() == ["hello"]
        await bus.publish(chat, "unheard")
        await bus.publish(other, "heard")
        assert await client.data() == ["heard"]

        await client.say(channels={chat: 1})
        assert await client.data() == ["unheard"]


async def test_every_command_that_follows_channels_is_answered_with_one_array(web: FeedServer, chat: str) -> None:
    async with websocket(web) as client:
        await client.say(channels={chat: 0})
        first = await client.hear()
        await client.say(channels={chat: 0}, epoch=first[0]["data"])
        second = await client.hear()
        await client.say(channels={})
        sign_of_life = await client.hear()

    assert [message["channel"] for message in first] == ["/__epoch"]
    assert second == sign_of_life == []


async def test_an_epoch_that_is_another_one_is_told(bus: Bus, web: FeedServer, chat: str) -> None:
    await bus.publish(chat, "a")

    async with websocket(web) as client:
        await client.say(channels={chat: 7}, epoch="another")
        epoch, message = await client.hear()

    assert (epoch["channel"], message["data"]) == ("/__epoch", "a")


@pytest.mark.parametrize(
    "said", ["what?", "[]", '{"channel": {}}', '{"channels": {"/a": []}}', '{"channels": {"": 0}}', b"\xff\xfe"]
)
async def test_a_websocket_that_is_not_understood_is_closed(web: FeedServer, said: str | bytes) -> None:
    async with websocket(web) as client:
        await client.line.send(said)

        code, reason = await client.closed()

    assert code == 1008
    assert reason.partition(":")[0] in ("invalid_argument", "invalid_name")
    await web.holds(0)


async def test_a_websocket_that_says_too_much_at_once_is_closed(
    web: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MAX_COMMANDS", 0)

    async with websocket(web) as client:
        await client.say(channels={"/a": 0})

        assert (await client.closed())[0] == 1008


async def test_channels_beyond_the_limit_close_a_websocket(open_door: OpenDoor) -> None:
    web = await open_door(max_channels=2)

    async with websocket(web) as client:
        for channels in ({"/a": 0, "/b": 0}, {"/a": 0}):
            await client.say(channels=channels)
            await client.hear()
        await client.say(channels={"/c": 0})

        code, reason = await client.closed()

    assert code == 1008
    assert reason == "invalid_argument: One client may follow 2 channels, and not 3."


async def test_channels_that_may_not_be_followed_are_named(bus: Bus, open_door: OpenDoor) -> None:
    def may_follow(visitor: Visitor, channel: str) -> bool:
        return channel != "/staff"

    web = await open_door(may_subscribe=may_follow)

    async with websocket(web) as client:
        await client.say(channels={"/staff": 0})
        (denied,) = await client.hear()
        await client.say(channels={"/chat": 0})
        await client.hear()
        await bus.publish("/staff", "secret")
        await bus.publish("/chat", "open")
        assert await client.data() == ["open"]

    assert (denied["channel"], denied["data"]) == ("/__denied", ["/staff"])


async def test_a_page_of_another_origin_cannot_open_a_websocket(web: FeedServer) -> None:
    with pytest.raises(InvalidStatus) as error:
        async with websocket(web, origin="https://elsewhere.org"):
            pass

    assert refusal(error.value) == (403, "origin_denied")


async def test_pages_of_this_server_and_of_allowed_origins_can_open_a_websocket(open_door: OpenDoor) -> None:
    web = await open_door(origins=["https://friend.org"])

    for origin in ("https://friend.org", f"http://127.0.0.1:{web.port}", None):
        async with websocket(web, origin=origin) as client:
            await client.say(channels={"/chat": 0})
            assert [message["channel"] for message in await client.hear()] == ["/__epoch"]


async def test_one_websocket_too_many_is_told_to_come_back(open_door: OpenDoor) -> None:
    web = await open_door(max_active_clients=1)

    async with websocket(web) as client:
        await client.say(channels={"/chat": 0})
        await client.hear()
        with pytest.raises(InvalidStatus) as error:
            async with websocket(web, "you"):
                pass

    assert refusal(error.value) == (429, "too_many_clients")
    assert error.value.response.headers["retry-after"]


async def test_a_websocket_that_is_closed_frees_its_place_at_once(web: FeedServer, chat: str) -> None:
    for _ in range(20):
        async with websocket(web) as client:
            # Nobody waits for the answer.
            await client.say(channels={chat: 0})
        await web.holds(0)


async def test_what_a_client_says_while_it_is_being_answered_is_not_missed(open_door: OpenDoor) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def may_follow(visitor: Visitor, channel: str) -> bool:
        asked.set()
        return await answered.wait()

    web = await open_door(may_subscribe=may_follow)

    async with websocket(web) as client:
        await client.say(channels={"/chat": 0})
        await asked.wait()
        await client.line.send("what?")
        # An answer to a ping tells that the server has read what came before it.
        await (await client.line.ping())
        answered.set()

        assert (await client.closed())[0] == 1008


async def test_a_websocket_that_vanishes_frees_its_place_at_once(web: FeedServer, chat: str) -> None:
    async with websocket(web) as client:
        await client.say(channels={chat: 0})
        await client.hear()
        client.line.transport.abort()

        await web.holds(0)


async def test_a_websocket_that_does_not_read_delays_nobody_and_is_closed(
    bus: Bus, web: FeedServer, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "READ_SECONDS", 0.5)

    async with websocket(web, "slow", compression=None) as slow, websocket(web, "quick") as quick:
        await slow.say(channels={chat: 0})
        await quick.say(channels={chat: 0})
        await quick.hear()
        slow.line.transport.pause_reading()
        for number in range(200):
            await bus.publish(chat, [number, "x" * 100_000])
            assert [data[0] for data in await quick.data()] == [number]

        await web.holds(1)
        slow.line.transport.abort()


async def test_a_websocket_is_closed_when_the_door_is(web: FeedServer, chat: str) -> None:
    async with websocket(web, subprotocols=["onebus", "bearer.c2VjcmV0"]) as client:
        await client.say(channels={chat: 0})
        await client.hear()
        await web.door.close()

        assert await client.closed() == (1001, "Come back.")
        assert client.line.subprotocol == "onebus"


async def test_a_websocket_is_closed_when_everything_is_wiped(bus: Bus, web: FeedServer, chat: str) -> None:
    async with websocket(web) as client:
        await client.say(channels={chat: 0})
        await bus.publish(chat, "before")
        assert await client.data() == ["before"]
        await bus.feeds.reset()
        await bus.publish(chat, "after")

        assert (await client.closed())[0] == 1001
