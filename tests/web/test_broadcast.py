"""Publishing over HTTP, where that is allowed."""

from typing import Any

import pytest

from onebus import Bus
from tests.web.conftest import OpenDoor
from tests.web.server import FeedServer

PATH = "/message-bus/broadcast"


@pytest.fixture
async def web(open_door: OpenDoor) -> FeedServer:
    return await open_door(allow_broadcast=True, site_id_lookup=lambda request: request.headers.get("x-site"))


async def published(bus: Bus, channel: str, site_id: str | None = None) -> list[Any]:
    return [message.data for message in await bus.backlog(channel, site_id=site_id)]


async def test_broadcast_is_the_id_of_a_client_unless_it_is_allowed(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    web = await open_door(long_polling_enabled=False)

    response = await web.request("POST", PATH, body=f"channel={chat}&data=hi".encode())

    assert (response.status, response.json) == (200, [])
    assert await published(bus, chat) == []


@pytest.mark.parametrize("in_query", [True, False])
async def test_a_form_publishes_text(bus: Bus, web: FeedServer, chat: str, in_query: bool) -> None:
    form = f"channel={chat}&data=Gr%C3%BC%C3%9Fe+%26+more"

    response = (
        await web.request("POST", f"{PATH}?{form}") if in_query else await web.request("POST", PATH, body=form.encode())
    )

    assert (response.status, response.body) == (200, b"sent")
    assert response.headers["content-type"] == "text/html"
    assert await published(bus, chat) == ["Grüße & more"]


async def test_json_publishes_anything_to_anybody_and_is_answered_with_the_id(
    bus: Bus, web: FeedServer, chat: str
) -> None:
    first = await web.post_json(PATH, {"channel": chat, "data": {"a": [1]}})
    second = await web.post_json(PATH, {"channel": chat, "data": None, "user_ids": [1], "site_id": "a"})
    third = await web.post_json(PATH, {"channel": chat}, headers={"X-Site": "a"})

    assert [first.json, second.json, third.json] == [{"id": 1}, {"id": 1}, {"id": 2}]
    assert await published(bus, chat) == [{"a": [1]}]
    (targeted, other) = await bus.backlog(chat, site_id="a")
    assert (targeted.user_ids, other.user_ids) == ([1], None)


async def test_several_messages_are_published_in_order(bus: Bus, web: FeedServer, chat: str) -> None:
    several = [{"channel": chat, "data": number} for number in range(100)]

    response = await web.post_json(PATH, several)

    assert response.json == {"ids": list(range(1, 101))}
    assert await published(bus, chat) == list(range(100))


@pytest.mark.parametrize(
    "bad",
    [
        {"channel": ""},
        {"data": "no channel"},
        {"channel": "/chat", "user_ids": []},
        {"channel": "/global/chat", "user_ids": [1]},
        {"channel": "/chat", "misspelt": 1},
        {"channel": "/chat", "site_id": "a|b"},
        "text",
    ],
)
async def test_nothing_is_published_if_one_of_several_is_wrong(
    bus: Bus, web: FeedServer, chat: str, bad: object
) -> None:
    response = await web.post_json(PATH, [{"channel": chat, "data": 1}, bad])

    assert response.status == 400
    assert await published(bus, chat) == []


@pytest.mark.parametrize("body", [b"", b"data=hi"])
async def test_a_form_without_a_channel_is_refused(web: FeedServer, body: bytes) -> None:
    response = await web.request("POST", PATH, body=body)

    assert (response.status, response.error_code) == (400, "invalid_argument")


async def test_a_page_of_another_origin_may_not_publish(bus: Bus, web: FeedServer, chat: str) -> None:
    response = await web.post_json(PATH, {"channel": chat}, headers={"Origin": "https://elsewhere.org"})

    assert (response.status, response.error_code) == (403, "origin_denied")
    assert await published(bus, chat) == []


async def test_a_page_of_an_allowed_origin_may_publish_and_read_the_answer(open_door: OpenDoor, chat: str) -> None:
    web = await open_door(allow_broadcast=True, origins=["https://friend.org"])

    response = await web.post_json(PATH, {"channel": chat}, headers={"Origin": "https://friend.org"})

    assert response.status == 200
    assert response.headers["access-control-allow-origin"] == "https://friend.org"
