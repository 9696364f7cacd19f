"""Clients that are held: which of two polls is, how many may be, and what happens when one goes away or is slow."""

import asyncio
import json
from typing import Any

import pytest

from onebus import Bus
from onebus.web import Answer, Request, Visitor
from onebus.web.feeds import attendance, rooms
from tests.eventually import eventually
from tests.web.conftest import OpenDoor
from tests.web.exchange import FRAME_END, Reply
from tests.web.server import FeedServer

# Two polls of one client


@pytest.mark.parametrize(("first", "second"), [(1, 2), (1, 1), (None, None)])
async def test_a_later_poll_ends_the_one_that_is_held(
    bus: Bus, web: FeedServer, chat: str, first: int | None, second: int | None
) -> None:
    def numbered(number: int | None) -> dict[str, object]:
        return {chat: 0} if number is None else {chat: 0, "__seq": number}

    async with web.poll(numbered(first), client="me") as old:
        assert await old.frame() == []
        async with web.poll(numbered(second), client="me") as new:
            assert await new.frame() == []

            assert await old.frame() == []
            assert await old.has_ended_well()
            await bus.publish(chat, "hi")
            assert await new.data() == ["hi"]


async def test_an_earlier_poll_is_ended_itself_and_does_not_disturb_the_one_that_is_held(
    bus: Bus, open_door: OpenDoor, chat: str
) -> None:
    web = await open_door(long_polling_interval=1.0)

    async with web.poll({chat: 0, "__seq": 5}, client="me") as held:
        assert await held.frame() == []
        async with web.poll({chat: 0, "__seq": 4}, client="me") as refused:
            assert await refused.frame() == await refused.frame() == []
            assert await refused.has_ended_well()
        async with web.long_poll({chat: 0, "__seq": 3}, client="me") as refused:
            assert (await refused.whole()).json == []
        await web.holds(1)
        await bus.publish(chat, "hi")

        assert await held.data() == ["hi"]
        assert await held.frame() == []


async def test_an_earlier_poll_of_another_client_is_held(bus: Bus, web: FeedServer, chat: str) -> None:
    async with web.poll({chat: 0, "__seq": 5}, client="me") as mine, web.poll({chat: 0, "__seq": 4}) as other:
        await mine.frame()
        await other.frame()
        await bus.publish(chat, "hi")

        assert await mine.data() == await other.data() == ["hi"]


# How many


async def test_one_client_too_many_is_told_to_come_back(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    web = await open_door(max_active_clients=1)

    async with web.poll({chat: 0}, client="me") as held:
        await held.frame()
        async with web.poll({chat: 0}) as reply:
            refused = await reply.whole()
        quick = await web.look({chat: 0})
        await bus.publish(chat, "hi")
        async with web.poll({chat: 0}) as reply:
            served = await reply.whole()

    assert (refused.status, refused.error_code) == (429, "too_many_clients")
    assert int(refused.headers["retry-after"]) > 0
    assert quick == []
    assert [message["data"] for message in served.json] == ["hi"]


async def test_a_client_that_comes_again_takes_its_own_place(open_door: OpenDoor, chat: str) -> None:
    web = await open_door(max_active_clients=1)

    async with web.poll({chat: 0, "__seq": 1}, client="me") as old:
        await old.frame()
        async with web.poll({chat: 0, "__seq": 2}, client="me") as new:
            assert await new.frame() == await old.frame() == []
            assert len(web.door.held) == 1


async def test_a_client_that_goes_away_frees_its_place_at_once(open_door: OpenDoor, chat: str) -> None:
    web = await open_door(max_active_clients=2)

    async with web.poll({chat: 0}) as stream, web.long_poll({chat: 0}) as long_poll:
        await stream.frame()
        await web.holds(2)
        stream.go_away()
        await web.holds(1)
        long_poll.go_away()
        await web.holds(0)


async def test_nothing_is_read_from_the_store_while_nobody_is_held(
    web: FeedServer, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "LINGER_SECONDS", 0.0)

    async def is_nobody_reading() -> bool:
        return all(task.get_name() != "onebus-feeds" for task in asyncio.all_tasks())

    async with web.poll({chat: 0}) as reply:
        await reply.frame()
        assert not await is_nobody_reading()

    await eventually(is_nobody_reading)


async def test_those_who_want_to_know_hear_who_comes_and_goes(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    heard: list[tuple[str, str, object]] = []

    async def left(visitor: Visitor) -> None:
        heard.append(("left", visitor.client_id, visitor.user_id))

    web = await open_door(
        user_id_lookup=lambda request: 7,
        on_connect=lambda visitor: heard.append(("came", visitor.client_id, visitor.user_id)),
        on_disconnect=left,
    )
    await web.look({chat: 0}, client="not-held")
    async with web.poll({chat: 0}, client="me") as reply:
        await reply.frame()
        came = list(heard)
    await web.holds(0)

    assert came == [("came", "me", 7)]
    assert heard[1:] == [("left", "me", 7)]


async def test_a_client_that_is_turned_away_when_it_comes_is_not_held(open_door: OpenDoor, chat: str) -> None:
    left: list[str] = []

    def turn_away(visitor: Visitor) -> None:
        raise PermissionError(visitor.client_id)

    web = await open_door(
        on_connect=turn_away,
        on_disconnect=lambda visitor: left.append(visitor.client_id),
        on_middleware_error=lambda request, problem: Answer(403, "text/plain", b"not today"),
    )

    async with web.poll({chat: 0}) as reply:
        response = await reply.whole()

    assert (response.status, response.body) == (403, b"not today")
    assert (len(web.door.held), left) == (0, [])


async def test_admins_see_who_is_held(open_door: OpenDoor, chat: str) -> None:
    web = await open_door(
        user_id_lookup=lambda request: "ann", is_admin_lookup=lambda request: "x-admin" in request.headers
    )

    async with web.poll({chat: 0}, client="me") as reply:
        await reply.frame()
        seen = await web.get("/message-bus/_diagnostics", headers={"X-Admin": "1"})
        denied = await web.get("/message-bus/_diagnostics")

    assert seen.json == {
        "held": {"streaming": 1},
        "clients": [{"client_id": "me", "user_id": "ann", "site_id": None, "channels": {chat: 0}}],
    }
    assert (denied.status, denied.error_code) == (403, "not_allowed")


async def test_nobody_is_an_admin_unless_somebody_says_so(web: FeedServer) -> None:
    assert (await web.get("/message-bus/_diagnostics")).status == 403


# Clients that do not read


async def test_a_client_that_does_not_read_delays_nobody_and_does_not_fill_the_memory(
    bus: Bus, open_door: OpenDoor, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "READ_SECONDS", 0.5)
    web = await open_door(long_polling_interval=3.0)
    text = "x" * 100_000

    async with (
        web.poll({chat: 0}, client="slow", receive_buffer_bytes=4096) as slow,
        web.poll({chat: 0}, client="quick") as quick,
    ):
        await slow.begin()
        await quick.frame()
        for number in range(200):
            await bus.publish(chat, [number, text])
            assert [data[0] for data in await quick.data()] == [number]
        (waiting,) = [one.waiting_bytes for one in web.door.held.listeners() if one.visitor.client_id == "slow"]
        assert waiting <= 1024 * 1024
        # It is given up a little after its time.
        await web.holds(0)


async def test_a_client_that_was_slow_gets_everything_in_order(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    web = await open_door()
    text = "x" * 100_000

    async with web.poll({chat: 0}, receive_buffer_bytes=65536) as slow:
        await slow.begin()
        for number in range(100):
            await bus.publish(chat, [number, text])
        got: list[int] = []
        while len(got) < 100:
            got.extend(data[0] for data in await slow.data())

    assert got == list(range(100))


@pytest.mark.parametrize("count", [1, 3])
async def test_a_long_past_comes_in_pieces_that_fit_into_the_memory(
    bus: Bus, web: FeedServer, chat: str, count: int
) -> None:
    channels = [f"{chat}/{number}" for number in range(count)]
    for number in range(90 // count):
        for channel in channels:
            await bus.publish(channel, [number, "x" * 50_000])

    got: dict[str, list[int]] = {channel: [] for channel in channels}
    async with web.poll(dict.fromkeys(channels, 0)) as reply:
        while sum(map(len, got.values())) < 90:
            chunk = await reply.chunk()
            assert len(chunk) < 1.2 * 1024 * 1024
            for message in json.loads(chunk.removesuffix(FRAME_END)):
                got[message["channel"]].append(message["data"][0])

    assert list(got.values()) == count * [list(range(90 // count))]


# Errors


async def test_an_error_may_be_answered_by_the_program(open_door: OpenDoor, chat: str) -> None:
    seen: list[tuple[str, Exception]] = []

    def who(request: Request) -> int:
        raise PermissionError("no session")

    async def choose(request: Request, problem: Exception) -> Answer | None:
        seen.append((request.path, problem))
        return Answer(401, "text/plain", b"log in first") if isinstance(problem, PermissionError) else None

    web = await open_door(user_id_lookup=who, on_middleware_error=choose)

    async with web.poll({chat: 0}, client="me") as reply:
        response = await reply.whole()
    other = await open_door(on_middleware_error=choose)
    async with other.poll({"": 0}) as reply:
        left_to_the_door = await reply.whole()

    assert (response.status, response.body) == (401, b"log in first")
    assert seen[0][0] == "/message-bus/me/poll"
    assert left_to_the_door.status == 400


# The end


async def test_a_door_that_is_closed_answers_everybody_who_is_held(open_door: OpenDoor, chat: str) -> None:
    web = await open_door()

    async with web.poll({chat: 0}) as stream, web.long_poll({chat: 0}) as long_poll:
        await stream.frame()
        await web.holds(2)
        await web.door.close()

        assert await stream.frame() == []
        assert await stream.has_ended_well()
        assert (await long_poll.whole()).json == []


async def test_when_everything_is_wiped_polls_end_and_clients_learn_where_their_channels_stand(
    bus: Bus, web: FeedServer, chat: str
) -> None:
    for text in "abc":
        await bus.publish(chat, text)

    async with web.poll({chat: 3}) as held:
        assert await held.frame() == []
        await bus.feeds.reset()
        await bus.publish(chat, "new")
        assert await held.frame() == []
        assert await held.has_ended_well()
    (status,) = await web.look({chat: 3})

    assert status["data"] == {chat: 1}


# Nothing in between


@pytest.mark.parametrize("streaming", [True, False])
async def test_nothing_is_lost_or_doubled_between_the_backlog_and_what_is_live(
    bus: Bus, open_door: OpenDoor, chat: str, streaming: bool
) -> None:
    web = await open_door(long_polling_interval=0.05)
    got: list[int] = []

    async def follow() -> None:
        while len(got) < 500:
            position = {chat: got[-1] if got else 0}
            async with web.poll(position) if streaming else web.long_poll(position) as reply:
                got.extend(await (_streamed(reply) if streaming else _held(reply)))

    following = asyncio.create_task(follow())
    for number in range(1, 501):
        await bus.publish(chat, number)
        await asyncio.sleep(0.001)

    async def everything() -> bool:
        return following.done()

    await eventually(everything)
    assert got == list(range(1, 501))


async def _streamed(reply: Reply) -> list[Any]:
    got = await reply.data()
    while frame := await reply.data():
        got.extend(frame)
    return got


async def _held(reply: Reply) -> list[Any]:
    return [message["data"] for message in (await reply.whole()).json]
