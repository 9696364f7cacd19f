"""Polls: what is asked, what is answered at once, and what the answer looks like on the wire."""

import json
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import InvalidArgument
from onebus.web import FeedSettings, Request
from onebus.web.feeds import listener
from tests.eventually import eventually
from tests.web.conftest import OpenDoor
from tests.web.exchange import FRAME_END
from tests.web.server import FeedServer

NO_CACHE = {
    "cache-control": "must-revalidate, private, max-age=0",
    "pragma": "no-cache",
    "expires": "0",
}


def status(**channels: int) -> dict[str, Any]:
    return {"global_id": -1, "message_id": -1, "channel": "/__status", "data": channels}


def without(headers: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in names}


# Routes


@pytest.mark.parametrize("route", ["", "/", "app", "/app", "app/", "//app//", "/app/inner/"])
def test_the_base_route_begins_and_ends_with_one_slash(route: str) -> None:
    normal = FeedSettings(base_route=route).base_route

    assert normal == {"": "/", "/": "/", "/app/inner/": "/app/inner/"}.get(route, "/app/")


async def test_the_base_route_comes_before_all_paths(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    web = await open_door(base_route="bus")
    await bus.publish(chat, "hi")

    assert await web.look_for_data({chat: 0}, path="/bus/message-bus/") == ["hi"]
    assert (await web.get("/message-bus/abc/poll?dlp=t")).status == 404


async def test_a_request_without_a_client_id_is_not_found(web: FeedServer) -> None:
    response = await web.request("POST", "/message-bus/")

    assert (response.status, response.body) == (404, b"not found")
    assert "content-type" not in response.headers


@pytest.mark.parametrize("rest", ["", "/", "/poll", "/anything/else"])
async def test_what_follows_the_client_id_does_not_matter(bus: Bus, web: FeedServer, chat: str, rest: str) -> None:
    await bus.publish(chat, "hi")

    response = await web.request("POST", f"/message-bus/abc{rest}?dlp=t", body=f"{chat}=0".encode())

    assert [message["data"] for message in response.json] == ["hi"]


async def test_options_are_answered_before_anybody_is_looked_up(open_door: OpenDoor) -> None:
    def nobody(request: Request) -> int:
        raise AssertionError("the user was looked up")

    web = await open_door(user_id_lookup=nobody, extra_response_headers_lookup=lambda request: {"x-extra": "1"})

    response = await web.request("OPTIONS", "/message-bus/abc/poll")

    assert (response.status, response.body) == (200, b"OK")
    assert response.headers.items() >= {**NO_CACHE, "x-extra": "1"}.items()


async def test_a_get_without_a_body_asks_for_nothing(web: FeedServer) -> None:
    response = await web.get("/message-bus/abc/poll?dlp=t")

    assert (response.status, response.json) == (200, [])


# What is asked


@pytest.mark.parametrize(
    ("last_id", "expected"),
    [
        ("0", ["a", "b", "c"]),
        ("1", ["b", "c"]),
        ("3", []),
        ("", []),
        ("-2", ["c"]),
        ("-3", ["b", "c"]),
        ("-99", ["a", "b", "c"]),
        ("what?", ["a", "b", "c"]),
        ("2 or so", ["c"]),
    ],
)
async def test_an_id_says_where_to_begin(
    bus: Bus, web: FeedServer, chat: str, last_id: str, expected: list[str]
) -> None:
    for text in "abc":
        await bus.publish(chat, text)

    assert await web.look_for_data({chat: last_id}) == expected


async def test_minus_one_and_ids_that_are_too_high_are_answered_with_where_the_channel_stands(
    bus: Bus, web: FeedServer, chat: str
) -> None:
    await bus.publish(chat, "a")
    await bus.publish(chat, "b")

    assert await web.look({chat: -1}) == [status(**{chat: 2})]
    assert await web.look({chat: 99}) == [status(**{chat: 2})]
    assert await web.look({f"{chat}/silent": -1, chat: 10**40}) == [status(**{f"{chat}/silent": 0, chat: 2})]


async def test_nothing_comes_from_the_past_of_a_silent_channel(web: FeedServer, chat: str) -> None:
    for last_id in (0, -2, -3, ""):
        assert await web.look({chat: last_id}) == []


async def test_a_message_is_an_object_of_four_fields_and_the_status_comes_last(
    bus: Bus, web: FeedServer, chat: str
) -> None:
    await bus.publish(f"{chat}/b", {"text": "Grüße"}, client_ids=["me"])
    await bus.publish(f"{chat}/a", 1)

    found = await web.look({f"{chat}/b": 0, f"{chat}/c": -1, f"{chat}/a": 0}, client="me")

    assert found == [
        {"global_id": 1, "message_id": 1, "channel": f"{chat}/b", "data": {"text": "Grüße"}},
        {"global_id": 2, "message_id": 1, "channel": f"{chat}/a", "data": 1},
        status(**{f"{chat}/c": 0}),
    ]


async def test_channels_in_the_query_are_not_asked_for(bus: Bus, web: FeedServer, chat: str) -> None:
    await bus.publish(chat, "hi")

    async with web.poll({}, query=f"?dlp=t&{chat}=0") as reply:
        assert (await reply.whole()).json == []


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])
async def test_the_body_may_be_json(bus: Bus, web: FeedServer, chat: str, content_type: str) -> None:
    for text in "abc":
        await bus.publish(chat, text)
    body: dict[str, object] = {chat: 1, f"{chat}/x": None, f"{chat}/y": "-1", f"{chat}/z": [], "__seq": 7}

    response = await web.post_json("/message-bus/abc/poll?dlp=t", body, headers={"Content-Type": content_type})

    assert [message["data"] for message in response.json] == ["b", "c", {f"{chat}/y": 0}]


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b'{"/chat": ', b"\xff"])
async def test_a_body_that_is_no_json_object_is_refused(web: FeedServer, body: bytes) -> None:
    response = await web.request(
        "POST", "/message-bus/abc/poll", body=body, headers={"Content-Type": "application/json"}
    )

    assert (response.status, response.error_code) == (400, "invalid_argument")


@pytest.mark.parametrize("channel", ["", "/" + 300 * "x", "/a\nb"])
async def test_a_channel_that_cannot_be_is_refused(web: FeedServer, channel: str) -> None:
    response = await web.post_json("/message-bus/abc/poll?dlp=t", {channel: 0})

    assert (response.status, response.error_code) == (400, "invalid_name")


async def test_more_channels_than_a_client_may_follow_are_refused(open_door: OpenDoor) -> None:
    web = await open_door(max_channels=2)

    response = await web.post_json("/message-bus/abc/poll", {"/a": 0, "/b": 0, "/c": 0})

    assert (response.status, response.error_code) == (400, "invalid_argument")


async def test_a_body_without_end_is_refused(web: FeedServer) -> None:
    response = await web.request("POST", "/message-bus/abc/poll", body=b"x" * (2 * 1024 * 1024 + 1))

    assert (response.status, response.error_code) == (413, "payload_too_large")


# What is answered


async def test_an_answer_at_once_is_plain_json(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    web = await open_door(extra_response_headers_lookup=lambda request: {"X-Extra": request.method})
    await bus.publish(chat, "hi")

    async with web.long_poll({chat: 0}) as reply:
        response = await reply.whole()

    assert response.status == 200
    assert without(response.headers, "date", "server", "content-length") == {
        **NO_CACHE,
        "content-type": "application/json; charset=utf-8",
        "x-extra": "POST",
    }


async def test_a_held_answer_is_plain_json_and_the_end_of_the_connection(bus: Bus, web: FeedServer, chat: str) -> None:
    async with web.long_poll({chat: 0}) as reply:
        await web.holds(1)
        await bus.publish(chat, "Grüße")
        response = await reply.whole()

        assert await reply.has_ended()
    assert [message["data"] for message in response.json] == ["Grüße"]
    assert without(response.headers, "date", "server", "content-length") == {
        **NO_CACHE,
        "content-type": "application/json; charset=utf-8",
        "connection": "close",
    }


async def test_a_stream_is_a_sequence_of_frames_and_the_end_of_the_connection(
    bus: Bus, open_door: OpenDoor, chat: str
) -> None:
    web = await open_door(long_polling_interval=0.5)

    async with web.poll({chat: 0}) as reply:
        first = await reply.frame()
        await bus.publish(chat, "one|\r\n|\r\n|two")
        second = await reply.chunk()
        last = await reply.frame()

        assert await reply.has_ended_well()
    assert (first, last) == ([], [])
    assert json.loads(second.removesuffix(FRAME_END))[0]["data"] == "one|\r\n|\r\n|two"
    assert second.count(FRAME_END) == 1
    assert without(reply.headers, "date", "server") == {
        **NO_CACHE,
        "content-type": "text/plain; charset=utf-8",
        "transfer-encoding": "chunked",
        "x-content-type-options": "nosniff",
        "connection": "close",
    }


async def test_the_first_frame_has_the_backlog_and_comes_at_once(bus: Bus, web: FeedServer, chat: str) -> None:
    await bus.publish(chat, "a")

    async with web.poll({chat: 0}) as reply:
        assert await reply.data() == ["a"]
    async with web.poll({chat: -1}) as reply:
        assert await reply.frame() == [status(**{chat: 1})]
    async with web.poll({chat: 1}) as reply:
        assert await reply.frame() == []


async def test_a_long_poll_that_asks_where_a_channel_stands_is_answered_at_once(web: FeedServer, chat: str) -> None:
    async with web.long_poll({chat: -1}) as reply:
        assert (await reply.whole()).json == [status(**{chat: 0})]


async def test_a_long_poll_is_answered_with_nothing_when_its_time_is_over(open_door: OpenDoor, chat: str) -> None:
    web = await open_door(long_polling_interval=0.2)

    async with web.long_poll({chat: 0}) as reply:
        response = await reply.whole()

    assert (response.status, response.json) == (200, [])


async def test_a_client_of_an_old_protocol_is_not_sent_chunks(bus: Bus, web: FeedServer, chat: str) -> None:
    async with web.poll({chat: 0}, version="1.0") as reply:
        await web.holds(1)
        await bus.publish(chat, "hi")
        response = await reply.whole()

    assert [message["data"] for message in response.json] == ["hi"]
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert "transfer-encoding" not in response.headers


async def test_no_client_is_sent_chunks_where_that_is_switched_off(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    web = await open_door(chunked_encoding_enabled=False)

    async with web.poll({chat: 0}) as reply:
        await web.holds(1)
        await bus.publish(chat, "hi")
        response = await reply.whole()

    assert response.headers["content-type"] == "application/json; charset=utf-8"


async def test_no_client_is_held_where_that_is_switched_off(open_door: OpenDoor, chat: str) -> None:
    web = await open_door(long_polling_enabled=False)

    async with web.poll({chat: 0}) as reply:
        response = await reply.whole()

    assert response.json == []
    assert response.headers["content-type"] == "application/json; charset=utf-8"


async def test_no_client_is_held_while_the_feeds_are_off(bus: Bus, web: FeedServer, chat: str) -> None:
    async with web.poll({chat: 0}) as held:
        await held.frame()
        bus.feeds.off()

        assert await held.frame() == []
    async with web.poll({chat: 0}) as reply:
        assert (await reply.whole()).json == []
    bus.feeds.on()
    async with web.poll({chat: 0}) as again:
        await again.frame()
        await bus.publish(chat, "hi")
        assert await again.data() == ["hi"]


@pytest.mark.parametrize("name", ["long_polling_interval", "max_active_clients", "max_channels"])
def test_settings_that_would_let_nobody_in_are_refused(name: str) -> None:
    wrong: dict[str, Any] = {name: 0}

    with pytest.raises(InvalidArgument, match=name):
        FeedSettings(**wrong)


async def test_messages_that_are_over_do_not_hide_those_that_follow_them(
    bus: Bus, web: FeedServer, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_BYTES_AT_ONCE", 1)
    monkeypatch.setattr(listener, "MIN_BYTES_OF_CHANNEL", 1)
    for number in range(3):
        await bus.publish(chat, number, max_backlog_age=1000 if number == 2 else 0.001)
    await bus.publish(chat, "last")

    async def are_over() -> bool:
        return [message.data for message in await bus.backlog(chat)] == [2, "last"]

    await eventually(are_over)

    # One message comes at a time.
    assert await web.look_for_data({chat: 0}) == [2]
    assert await web.look_for_data({chat: 3}) == ["last"]


# New clients


async def test_a_client_that_asks_for_the_epoch_is_told_when_it_is_another_one(
    bus: Bus, web: FeedServer, chat: str
) -> None:
    for text in "ab":
        await bus.publish(chat, text)
    epoch = (await web.look({chat: 2, "__epoch": ""}))[0]
    unchanged = await web.look({chat: 2, "__epoch": epoch["data"]})

    await bus.feeds.reset()
    await bus.publish(chat, "c")
    await bus.publish(chat, "d")
    told, *messages = await web.look({chat: 2, "__epoch": epoch["data"]})

    assert epoch["channel"] == told["channel"] == "/__epoch"
    assert epoch["data"] != told["data"]
    assert unchanged == []
    assert [message["data"] for message in messages] == ["c", "d"]


async def test_a_client_that_asks_for_the_epoch_is_told_what_it_missed(bus: Bus, web: FeedServer, chat: str) -> None:
    for number in range(1, 9):
        await bus.publish(chat, number, max_backlog_size=3)

    one, another, *messages = await web.look({chat: 2, "__epoch": ""})
    from_the_start = await web.look({chat: 0, "__epoch": ""})
    told_nothing = await web.look({chat: 2})

    told = {notice["channel"]: notice["data"] for notice in (one, another)}
    assert told["/__gap"] == {chat: [3, 5]}
    assert [message["data"] for message in messages] == [6, 7, 8]
    assert [message["channel"] for message in from_the_start] == ["/__epoch", chat, chat, chat]
    assert [message["data"] for message in told_nothing] == [6, 7, 8]


async def test_a_client_that_asks_for_the_epoch_is_told_what_it_missed_since_the_beginning_if_it_was_there(
    bus: Bus, web: FeedServer, chat: str
) -> None:
    epoch, _ = await web.look({chat: -1, "__epoch": ""})
    for number in range(1, 9):
        await bus.publish(chat, number, max_backlog_size=3)

    gap, *messages = await web.look({chat: 0, "__epoch": epoch["data"]})

    assert (gap["channel"], gap["data"]) == ("/__gap", {chat: [1, 5]})
    assert [message["data"] for message in messages] == [6, 7, 8]


async def test_a_client_that_asks_for_the_epoch_and_the_newest_messages_learns_that_there_are_none(
    web: FeedServer, chat: str
) -> None:
    _, status = await web.look({chat: -3, "__epoch": ""})

    assert (status["channel"], status["data"]) == ("/__status", {chat: 0})
    assert await web.look({chat: -3}) == []
