"""Who sees what: targets, filters, sites, and which channels may be followed at all."""

from typing import Any

import pytest

from onebus import Bus
from onebus.objects.feeds.message import FeedMessage
from onebus.web import Request, Visitor
from tests.backings import on_async_stores
from tests.web.conftest import OpenDoor
from tests.web.server import FeedServer


def user(request: Request) -> int | None:
    return int(request.headers["x-user"]) if "x-user" in request.headers else None


async def groups(request: Request) -> list[str]:
    return request.headers.get("x-groups", "").split()


def site(request: Request) -> str | None:
    return request.headers.get("x-site")


@pytest.mark.parametrize(
    ("target", "headers", "client", "sees"),
    [
        ({"user_ids": [1, 2]}, {"X-User": "1"}, "", True),
        ({"user_ids": [1, 2]}, {"X-User": "3"}, "", False),
        ({"user_ids": ["1"]}, {"X-User": "1"}, "", False),
        ({"user_ids": [1]}, {}, "", False),
        ({"group_ids": ["a", "b"]}, {"X-Groups": "b c"}, "", True),
        ({"group_ids": ["a", "b"]}, {"X-Groups": "c"}, "", False),
        ({"user_ids": [1], "group_ids": ["a"]}, {"X-User": "2", "X-Groups": "a"}, "", True),
        ({"user_ids": [1], "group_ids": ["a"]}, {"X-User": "2"}, "", False),
        ({"client_ids": ["me"]}, {}, "me", True),
        ({"client_ids": ["me"]}, {"X-User": "1"}, "you", False),
        ({"client_ids": ["me"], "user_ids": [1]}, {"X-User": "1"}, "me", True),
        ({"client_ids": ["me"], "user_ids": [1]}, {"X-User": "1"}, "you", False),
        ({"client_ids": ["me"], "user_ids": [1]}, {"X-User": "2"}, "me", False),
    ],
)
async def test_a_message_is_seen_by_those_it_is_for(
    bus: Bus, open_door: OpenDoor, chat: str, target: Any, headers: Any, client: str, sees: bool
) -> None:
    web = await open_door(user_id_lookup=user, group_ids_lookup=groups)
    await bus.publish(chat, "secret", **target)
    await bus.publish(chat, "open")

    found = await web.look_for_data({chat: 0}, headers=headers, client=client)
    async with web.poll({chat: 2}, headers=headers, client=client) as held:
        await held.frame()
        await bus.publish(chat, "secret again", **target)
        await bus.publish(chat, "the end")
        live: list[Any] = []
        while "the end" not in live:
            live += await held.data()

    # Whoever may not see a message is told where to go on, at its next poll.
    assert found == (["secret", "open"] if sees else ["open", {chat: 2}])
    assert live == (["secret again", "the end"] if sees else ["the end"])


@on_async_stores
async def test_every_store_keeps_whom_a_message_is_for(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    web = await open_door(user_id_lookup=user, group_ids_lookup=groups)

    async with web.poll({chat: 0}, headers={"X-User": "1", "X-Groups": "a"}, client="me") as held:
        await held.frame()
        await bus.publish(chat, "user", user_ids=[1])
        await bus.publish(chat, "other user", user_ids=[2])
        await bus.publish(chat, "group", group_ids=["a"])
        await bus.publish(chat, "client", client_ids=["me"])
        live: list[Any] = []
        while "client" not in live:
            live += await held.data()

    assert live == ["user", "group", "client"]
    assert await web.look_for_data({chat: 0}, headers={"X-User": "2"}) == ["other user", {chat: 4}]


async def test_a_long_poll_is_not_ended_by_a_message_for_others(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    web = await open_door(user_id_lookup=user)

    async with web.long_poll({chat: 0}, headers={"X-User": "1"}) as held:
        await web.holds(1)
        await bus.publish(chat, "for two", user_ids=[2])
        await bus.publish(chat, "for one", user_ids=[1])

        assert [message["data"] for message in (await held.whole()).json] == ["for one"]


async def test_every_filter_of_a_channel_has_to_let_a_message_pass(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    def is_loud(message: FeedMessage, visitor: Visitor) -> bool:
        return bool(message.data.isupper())

    def is_mine(message: FeedMessage, visitor: Visitor) -> bool:
        return visitor.client_id in message.data.lower()

    def cannot_tell(message: FeedMessage, visitor: Visitor) -> bool:
        raise LookupError

    web = await open_door(
        filters=[(chat, is_loud), (f"{chat}/mine", is_mine), (f"{chat}/unclear", cannot_tell), ("/x", cannot_tell)]
    )
    channels = {chat: 0, f"{chat}/mine": 0, f"{chat}/unclear": 0, "/quiet": 0}

    async with web.poll(channels, client="ann") as held:
        await held.frame()
        for text in ("ann", "ANN", "BEN"):
            for channel in channels:
                await bus.publish(channel, text)
        live: list[tuple[str, str]] = []
        while live[-1:] != [("/quiet", "BEN")]:
            live += [(message["channel"], message["data"]) for message in await held.frame()]
    *found, told = await web.look(channels, client="ann")

    expected = {chat: ["ANN", "BEN"], f"{chat}/mine": ["ANN"], "/quiet": ["ann", "ANN", "BEN"]}
    seen = [(channel, text) for channel, texts in expected.items() for text in texts]
    assert sorted(live) == sorted(seen)
    assert [(message["channel"], message["data"]) for message in found] == seen
    assert told["data"] == {chat: 3, f"{chat}/mine": 3, f"{chat}/unclear": 3}


@on_async_stores
async def test_sites_do_not_hear_each_other_and_share_the_global_channels(
    bus: Bus, open_door: OpenDoor, chat: str
) -> None:
    web = await open_door(site_id_lookup=site)
    shared = f"/global{chat}"
    await bus.publish(chat, "old of a", site_id="a")
    await bus.publish(chat, "old of b", site_id="b")
    await bus.publish(shared, "old of all")

    channels = {chat: 0, shared: 0}
    async with (
        web.poll(channels, client="same", headers={"X-Site": "a"}) as in_a,
        web.poll(channels, client="same", headers={"X-Site": "b"}) as in_b,
    ):
        first = [await in_a.frame(), await in_b.frame()]
        await bus.publish(chat, "new of b", site_id="b")
        await bus.publish(chat, "new of a", site_id="a")
        await bus.publish(shared, "new of all")
        live: dict[str, list[Any]] = {"a": [], "b": []}
        while "new of all" not in live["a"]:
            live["a"] += await in_a.data()
        while "new of all" not in live["b"]:
            live["b"] += await in_b.data()

    assert [[message["data"] for message in frame] for frame in first] == [
        ["old of a", "old of all"],
        ["old of b", "old of all"],
    ]
    assert [message["channel"] for message in first[0]] == [chat, shared]
    assert live == {"a": ["new of a", "new of all"], "b": ["new of b", "new of all"]}
    assert await web.look({chat: -1}, headers={"X-Site": "c"}) == [
        {"global_id": -1, "message_id": -1, "channel": "/__status", "data": {chat: 0}}
    ]


async def test_the_site_of_the_bus_is_used_where_the_door_has_no_lookup(open_door: OpenDoor, bus: Bus) -> None:
    bus.feeds.site_id_lookup = lambda: "a"
    web = await open_door()
    await bus.publish("/chat", "hi")

    assert await web.look_for_data({"/chat": 0}) == ["hi"]


async def test_channels_that_may_not_be_followed_are_named_and_nothing_of_them_is_told(
    bus: Bus, open_door: OpenDoor, chat: str
) -> None:
    async def may_follow(visitor: Visitor, channel: str) -> bool:
        return visitor.user_id == 1 or not channel.startswith("/staff")

    web = await open_door(user_id_lookup=user, may_subscribe=may_follow)
    await bus.publish("/staff", "secret")
    await bus.publish(chat, "open")

    denied, *found = await web.look({"/staff": -1, chat: 0})
    async with web.poll({"/staff": 0}) as reply:
        refused = await reply.whole()
    allowed = await web.look_for_data({"/staff": 0}, headers={"X-User": "1"})

    assert (denied["channel"], denied["data"]) == ("/__denied", ["/staff"])
    assert [message["data"] for message in found] == ["open"]
    assert (refused.status, refused.error_code) == (403, "channel_denied")
    assert allowed == ["secret"]


async def test_something_in_front_of_the_door_may_choose_the_channels(bus: Bus, open_door: OpenDoor, chat: str) -> None:
    def choose(request: Request) -> int | None:
        request.scope["message_bus.channels"] = {chat: 0}
        request.scope["message_bus.seq"] = 3
        return None

    web = await open_door(user_id_lookup=choose)
    await bus.publish(chat, "chosen")

    async with web.poll({"/other": 0}) as held:
        assert await held.data() == ["chosen"]
        await bus.publish("/other", "not chosen")
        await bus.publish(chat, "live")
        assert await held.data() == ["live"]


async def test_what_the_lookups_raise_is_not_hidden(web: FeedServer, open_door: OpenDoor, chat: str) -> None:
    def fail(request: Request) -> int:
        raise LookupError("no session")

    broken = await open_door(user_id_lookup=fail)

    async with broken.poll({chat: 0}) as reply:
        assert (await reply.whole()).status == 500
