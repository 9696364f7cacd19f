"""Server-sent events."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest

from onebus import Bus
from onebus.web.feeds import events
from tests.web.conftest import OpenDoor
from tests.web.exchange import Reply
from tests.web.server import Channels, FeedServer


@dataclass(frozen=True, slots=True)
class Event:
    id: str = ""
    data: Any = None


class EventSource:
    """Reads a stream as browsers do."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._text = ""
        self.last_id = ""

    async def event(self) -> Event:
        """Return the next event; a heartbeat is an empty one."""
        while "\n\n" not in self._text:
            chunk = await self._reply.chunk()
            assert chunk, "the stream has ended"
            self._text += chunk.decode()
        block, _, self._text = self._text.partition("\n\n")
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        self.last_id = fields.get("id", self.last_id)
        return Event(fields.get("id", ""), json.loads(fields["data"]) if "data" in fields else None)

    async def message(self) -> Any:
        """Return the next message."""
        while (event := await self.event()).data is None:
            pass
        return event.data

    async def data(self) -> Any:
        """Return the data of the next message that was published."""
        while (message := await self.message())["message_id"] < 0:
            pass
        return message["data"]


@asynccontextmanager
async def event_source(
    web: FeedServer, channels: Channels, *, client: str = "me", last_id: str = ""
) -> AsyncIterator[EventSource]:
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
    async with web.exchange("GET", f"/message-bus/{client}/sse?{urlencode(channels)}", headers=headers) as reply:
        await reply.begin()
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield EventSource(reply)


async def test_events_carry_the_backlog_and_what_is_live(bus: Bus, web: FeedServer, chat: str) -> None:
    await bus.publish(chat, "old")

    async with event_source(web, {chat: 0}) as source:
        assert await source.data() == "old"
        await bus.publish(chat, "new\nline")
        message = await source.message()

    assert message == {"global_id": 2, "message_id": 2, "channel": chat, "data": "new\nline"}


async def test_the_epoch_is_told_first_and_a_status_last(bus: Bus, web: FeedServer, chat: str) -> None:
    await bus.publish(chat, "old")

    async with event_source(web, {chat: -1}) as source:
        told = [await source.message(), await source.message()]

    assert [notice["channel"] for notice in told] == ["/__epoch", "/__status"]
    assert told[1]["data"] == {chat: 1}


async def test_an_event_source_that_comes_back_misses_nothing(bus: Bus, web: FeedServer, chat: str) -> None:
    # A name that a header can carry only in bytes.
    other = f"{chat}/grüße"
    for number in range(3):
        await bus.publish(chat, number)
    await bus.publish(other, "hello")

    async with event_source(web, {chat: 0, other: 0}) as source:
        assert [await source.data(), await source.data()] == [0, 1]
        last_id = source.last_id
    async with event_source(web, {chat: 0, other: 0}, last_id=last_id) as source:
        assert [await source.data(), await source.data()] == [2, "hello"]
        await source.event()
        last_id = source.last_id
    await bus.publish(other, "again")
    async with event_source(web, {chat: 0, other: 0}, last_id=last_id) as source:
        assert await source.data() == "again"


async def test_an_event_source_that_began_with_nothing_goes_on_from_there(bus: Bus, web: FeedServer, chat: str) -> None:
    async with event_source(web, {chat: ""}) as source:
        while not source.last_id:
            await source.event()
    await bus.publish(chat, "while it was away")

    async with event_source(web, {chat: ""}, last_id=source.last_id) as source:
        assert await source.data() == "while it was away"


async def test_an_event_source_hears_of_a_new_life_of_the_feeds(bus: Bus, web: FeedServer, chat: str) -> None:
    for number in range(3):
        await bus.publish(chat, number)
    async with event_source(web, {chat: 0}) as source:
        while await source.data() != 2:
            pass
        await source.event()
    await bus.feeds.reset()
    await bus.publish(chat, "new")

    async with event_source(web, {chat: 0}, last_id=source.last_id) as source:
        told = await source.message()
        assert told["channel"] == "/__epoch"
        assert await source.data() == "new"


async def test_a_silent_stream_has_a_heart_that_beats(open_door: OpenDoor, chat: str) -> None:
    web = await open_door(long_polling_interval=0.05)

    async with event_source(web, {chat: ""}) as source:
        await source.event()
        while (beat := await source.event()).id:
            pass

    assert beat == Event()


async def test_an_event_source_that_goes_away_frees_its_place(web: FeedServer, chat: str) -> None:
    async with event_source(web, {chat: 0}) as source:
        await source.event()
        assert web.door.held.by_transport() == {"sse": 1}

    await web.holds(0)


async def test_an_event_source_that_does_not_read_is_given_up(
    bus: Bus, web: FeedServer, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "READ_SECONDS", 0.2)

    async with web.exchange("GET", f"/message-bus/me/sse?{chat}=0", receive_buffer_bytes=4096) as reply:
        await reply.begin()
        await web.holds(1)
        for _ in range(100):
            await bus.publish(chat, "x" * 100_000)

        await web.holds(0)


@pytest.mark.parametrize("last_id", ["what?", "[1]", '{"/chat": '])
async def test_an_id_that_is_not_ours_is_refused(web: FeedServer, chat: str, last_id: str) -> None:
    response = await web.get(f"/message-bus/me/sse?{chat}=0", headers={"Last-Event-ID": last_id})

    assert (response.status, response.error_code) == (400, "invalid_argument")


async def test_one_event_source_too_many_is_told_to_come_back(open_door: OpenDoor, chat: str) -> None:
    web = await open_door(max_active_clients=1)

    async with event_source(web, {chat: 0}) as source:
        await source.event()
        response = await web.get(f"/message-bus/you/sse?{chat}=0")

    assert (response.status, response.error_code) == (429, "too_many_clients")
