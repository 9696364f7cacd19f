"""The door on every store, and while a store is away."""

import asyncio
from typing import Any

import pytest

from onebus import Bus
from onebus.web import FeedSettings
from tests.backings import Backing, on_async_stores
from tests.conftest import running
from tests.eventually import eventually
from tests.services import PostgresServer, RedisServer
from tests.web.server import FeedServer, serving


@on_async_stores
async def test_an_id_says_where_to_begin_on_every_store(bus: Bus, web: FeedServer, chat: str) -> None:
    for text in "abc":
        await bus.publish(chat, text)
        await bus.publish(f"{chat}/other", text)

    found = {last_id: await web.look_for_data({chat: last_id}) for last_id in (0, 1, 3, "", -1, -2, -3, -99, 99)}

    assert found == {
        0: ["a", "b", "c"],
        1: ["b", "c"],
        3: [],
        "": [],
        -1: [{chat: 3}],
        -2: ["c"],
        -3: ["b", "c"],
        -99: ["a", "b", "c"],
        99: [{chat: 3}],
    }


@on_async_stores
async def test_polls_of_one_process_get_what_another_one_publishes(
    backing: Backing, web: FeedServer, chat: str
) -> None:
    async with (
        Bus(backing.url) as elsewhere,
        web.poll({chat: 0}) as stream,
        web.long_poll({chat: 0}) as long_poll,
        web.poll({chat: -1}) as from_now,
    ):
        await stream.frame()
        await from_now.frame()
        await web.holds(3)
        await elsewhere.publish(chat, "Grüße")

        assert await stream.data() == await from_now.data() == ["Grüße"]
        assert [message["data"] for message in (await long_poll.whole()).json] == ["Grüße"]


@on_async_stores
async def test_forgotten_messages_are_told_on_every_store(bus: Bus, web: FeedServer, chat: str) -> None:
    for number in range(1, 9):
        await bus.publish(chat, number, max_backlog_size=3)

    found = await web.look({chat: 2, "__epoch": ""})

    assert {message["channel"]: message["data"] for message in found}["/__gap"] == {chat: [3, 5]}
    assert [message["data"] for message in found if message["channel"] == chat] == [6, 7, 8]


@on_async_stores
async def test_when_everything_is_wiped_every_store_tells_a_new_epoch(bus: Bus, web: FeedServer, chat: str) -> None:
    await bus.publish(chat, "before")
    (before,) = await web.look({chat: 1, "__epoch": ""})

    async with web.poll({chat: 1}) as held:
        assert await held.frame() == []
        await bus.feeds.reset()
        await bus.publish(chat, "after")
        assert await held.frame() == []
        assert await held.has_ended_well()
    after, message = await web.look({chat: 1, "__epoch": before["data"]})

    assert before["data"] != after["data"]
    assert message["data"] == "after"


@pytest.mark.parametrize(
    "server_class",
    [
        pytest.param(RedisServer, marks=pytest.mark.xdist_group("redis")),
        pytest.param(PostgresServer, marks=pytest.mark.xdist_group("postgres")),
    ],
)
async def test_clients_that_are_held_while_the_store_is_away_go_on_afterwards(
    server_class: type[RedisServer] | type[PostgresServer], chat: str
) -> None:
    keeping: dict[str, Any] = {"append_only": True} if server_class is RedisServer else {}
    server: RedisServer | PostgresServer = server_class(**keeping)
    with running(server):
        async with Bus(server.url, deadline_seconds=1) as bus, serving(bus, FeedSettings(allow_broadcast=True)) as web:
            await bus.publish(chat, "before")
            async with web.poll({chat: 0}) as stream, web.long_poll({chat: 1}) as long_poll:
                assert await stream.data() == ["before"]
                await web.holds(2)
                await asyncio.to_thread(server.kill)
                # Clients that are slow read from the store what they have missed, as soon as they can.
                for listener in web.door.held.listeners():
                    listener.fell_behind()
                refused = await web.post_json("/message-bus/broadcast", {"channel": chat})
                async with web.poll({chat: -1}) as reply:
                    unanswered = await reply.whole()
                server.start()

                async def published() -> bool:
                    response = await web.post_json("/message-bus/broadcast", {"channel": chat, "data": "after"})
                    return response.status == 200

                await eventually(published, deadline_seconds=60)

                assert (await stream.data())[0] == "after"
                assert (await long_poll.whole()).json[0]["data"] == "after"

    for response in (refused, unanswered):
        assert (response.status, response.error_code) == (503, "store_unavailable")
        assert response.headers["retry-after"]
