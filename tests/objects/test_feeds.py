"""Feeds: publish, subscribe, and what channels remember, on every store."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from onebus import Bus
from onebus.errors import InvalidArgument, InvalidName, MessagesMissed, NotConnected, NotSerializable
from onebus.objects.feeds import subscription as subscriptions
from onebus.objects.feeds.limits import FeedLimits
from onebus.objects.feeds.message import FeedMessage
from onebus.objects.feeds.names import FEEDS
from onebus.objects.feeds.subscription import FeedSubscription
from tests.backings import on_async_stores
from tests.clock import FakeClock
from tests.objects.conftest import Connect
from tests.objects.hearing import comes_true

pytestmark = on_async_stores


@pytest.fixture
def chat() -> str:
    return f"/chat/{uuid4().hex[:8]}"


@pytest.fixture
async def alone(bus: Bus) -> AsyncIterator[Bus]:
    """A bus whose feeds nobody else has used: those of a store are all in one place."""
    await bus.feeds.reset()
    yield bus
    await bus.feeds.reset()


async def some(subscription: FeedSubscription, count: int) -> list[Any]:
    """Return the data of the next messages."""
    async with asyncio.timeout(20):
        return [(await anext(subscription)).data for _ in range(count)]


def data_of(messages: list[FeedMessage]) -> list[Any]:
    return [message.data for message in messages]


# Publishing


async def test_publishing_gives_ids_that_count_the_messages_of_the_channel(bus: Bus, chat: str) -> None:
    assert [await bus.publish(chat, number) for number in range(3)] == [1, 2, 3]
    assert await bus.publish(f"{chat}/other", "first") == 1


async def test_a_message_tells_everything_that_is_known_of_it(alone: Bus, chat: str) -> None:
    await alone.publish("/before", 0)
    await alone.publish(chat, {"text": "hi"}, user_ids=[1], group_ids=["staff"], client_ids=["abc"])

    (message,) = await alone.backlog(chat)

    assert (message.channel, message.message_id, message.global_id) == (chat, 1, 2)
    assert message.data == {"text": "hi"}
    assert (message.user_ids, message.group_ids, message.client_ids) == ([1], ["staff"], ["abc"])
    assert message.site_id is None


@pytest.mark.parametrize("name", ["user_ids", "group_ids", "client_ids"])
@pytest.mark.parametrize("ids", [[], "abc"])
async def test_a_message_that_nobody_could_see_is_refused(bus: Bus, chat: str, name: str, ids: Any) -> None:
    with pytest.raises(InvalidArgument):
        bus.publish(chat, "?", **{name: ids})
    assert await bus.last_id(chat) == 0


async def test_what_is_no_json_is_refused(bus: Bus, chat: str) -> None:
    with pytest.raises(NotSerializable):
        bus.publish(chat, {1, 2}.__iter__())
    assert await bus.last_id(chat) == 0


@pytest.mark.parametrize("channel", ["", "/" + 300 * "x", "/a\nb"])
async def test_a_channel_that_no_store_can_name_is_refused(bus: Bus, channel: str) -> None:
    with pytest.raises(InvalidName):
        bus.publish(channel, "?")


async def test_separators_in_names_and_data_stay_what_they_are(bus: Bus) -> None:
    channel = f"/a||b|{uuid4().hex}"
    async with bus.subscribe(channel) as subscription:
        await bus.publish(channel, "c||d|$|$")

        assert await some(subscription, 1) == ["c||d|$|$"]
    assert data_of(await bus.backlog(channel)) == ["c||d|$|$"]


async def test_nothing_is_published_on_a_bus_that_is_not_connected(bus: Bus, chat: str) -> None:
    await bus.disconnect()

    with pytest.raises(NotConnected):
        bus.publish(chat, "?")


async def test_what_was_published_is_stored_when_the_bus_has_disconnected(
    bus: Bus, connect: Connect, chat: str
) -> None:
    other = await connect()
    for number in range(100):
        bus.publish(chat, number)
    await bus.disconnect()

    assert data_of(await other.backlog(chat)) == list(range(100))


async def test_publishers_at_once_lose_nothing(bus: Bus, connect: Connect, chat: str) -> None:
    other = await connect()

    await asyncio.gather(*(one.publish(chat, number) for one in (bus, other) for number in range(50)))

    backlog = await bus.backlog(chat)
    assert [message.message_id for message in backlog] == list(range(1, 101))
    assert sorted(data_of(backlog)) == sorted([*range(50), *range(50)])


# What channels remember


async def test_the_backlog_is_what_follows_an_id(bus: Bus, chat: str) -> None:
    for number in range(1, 6):
        await bus.publish(chat, number)

    assert data_of(await bus.backlog(chat)) == [1, 2, 3, 4, 5]
    assert data_of(await bus.backlog(chat, 3)) == [4, 5]
    assert await bus.backlog(chat, 5) == []
    assert await bus.backlog(f"{chat}/unused") == []


async def test_last_ids_and_the_last_message(bus: Bus, chat: str) -> None:
    assert await bus.last_id(chat) == 0
    assert await bus.feeds.last_message(chat) is None
    await bus.publish(chat, "a")
    await bus.publish(chat, "b")

    last = await bus.feeds.last_message(chat)

    assert last
    assert (last.message_id, last.data) == (2, "b")
    assert await bus.feeds.last_ids(chat, f"{chat}/unused") == {chat: 2, f"{chat}/unused": 0}


async def test_a_channel_keeps_its_newest_messages(connect: Connect, chat: str) -> None:
    bus = await connect(feed_limits=FeedLimits(max_backlog_size=2))
    for number in range(1, 6):
        await bus.publish(chat, number)

    assert data_of(await bus.backlog(chat)) == [4, 5]
    assert await bus.last_id(chat) == 5


async def test_a_publish_may_limit_the_backlog_of_its_channel(bus: Bus, chat: str) -> None:
    for number in range(1, 6):
        await bus.publish(chat, number)
    await bus.publish(chat, 6, max_backlog_size=2, max_backlog_age=60)

    assert data_of(await bus.backlog(chat)) == [5, 6]


async def test_messages_are_forgotten_when_they_are_old(connect: Connect, chat: str) -> None:
    clock = FakeClock()
    bus = await connect(clock=clock, feed_limits=FeedLimits(max_backlog_age=100))
    await bus.publish(chat, "old")
    clock.advance(60)
    await bus.publish(chat, "short", max_backlog_age=10)
    await bus.publish(chat, "new")
    assert data_of(await bus.backlog(chat)) == ["short", "new"]

    clock.advance(20)
    assert data_of(await bus.backlog(chat)) == ["new"]
    clock.advance(30)
    assert data_of(await bus.backlog(chat)) == ["new"]
    clock.advance(60)
    assert await bus.backlog(chat) == []
    assert await bus.publish(chat, "newest") == 4


async def test_the_global_backlog_has_the_newest_of_all_channels_that_are_remembered(
    alone: Bus, connect: Connect, chat: str
) -> None:
    bus = await connect(feed_limits=FeedLimits(max_backlog_size=2, max_global_backlog_size=4))
    for number in range(1, 6):
        await bus.publish(chat, number)
    await bus.publish("/other", "a")

    found = await bus.feeds.global_backlog()

    assert [(message.global_id, message.channel, message.data) for message in found] == [
        (4, chat, 4),
        (5, chat, 5),
        (6, "/other", "a"),
    ]
    assert data_of(await bus.feeds.global_backlog(5)) == ["a"]


# Subscribing


async def test_a_subscriber_gets_what_is_published_from_now_on(bus: Bus, connect: Connect, chat: str) -> None:
    other = await connect()
    await bus.publish(chat, "before")
    async with other.subscribe(chat) as subscription:
        for number in range(1, 4):
            await bus.publish(chat, number)
        await bus.publish(f"{chat}/other", "elsewhere")
        await bus.publish(chat, "last")

        assert await some(subscription, 4) == [1, 2, 3, "last"]


@pytest.mark.parametrize(
    ("last_id", "expected"),
    [(0, [1, 2, 3]), (2, [3]), (3, []), (-1, []), (-2, [3]), (-3, [2, 3]), (-99, [1, 2, 3]), (999, [1, 2, 3])],
)
async def test_a_subscriber_begins_where_it_wants(bus: Bus, chat: str, last_id: int, expected: list[int]) -> None:
    for number in range(1, 4):
        await bus.publish(chat, number)

    async with bus.subscribe(chat, last_id=last_id) as subscription:
        await bus.publish(chat, "live")

        assert await some(subscription, len(expected) + 1) == [*expected, "live"]


async def test_nothing_is_lost_or_doubled_between_the_backlog_and_what_is_live(
    bus: Bus, connect: Connect, chat: str
) -> None:
    other = await connect()
    done = asyncio.Event()

    async def publish() -> None:
        number = 0
        while not done.is_set():
            number += 1
            await bus.publish(chat, number)
        await bus.publish(chat, "end")

    publishing = asyncio.create_task(publish())
    for _ in range(5):
        async with other.subscribe(chat, last_id=0) as subscription:
            numbers = await some(subscription, 30)
            assert numbers == list(range(numbers[0], numbers[0] + 30))
    done.set()
    await publishing


async def test_a_callback_gets_each_message_and_may_be_async(bus: Bus, chat: str) -> None:
    plain: list[Any] = []
    slow: list[Any] = []

    async def hear(message: FeedMessage) -> None:
        await asyncio.sleep(0)
        slow.append(message.data)

    await bus.subscribe(chat, lambda message: plain.append(message.data))
    await bus.subscribe(chat, hear)
    for number in range(3):
        await bus.publish(chat, number)

    await comes_true(lambda: plain == slow == [0, 1, 2])
    assert bus.unsubscribe(chat)
    assert not bus.unsubscribe(chat)


async def test_a_callback_that_fails_is_reported_and_goes_on(bus: Bus, chat: str) -> None:
    errors: list[Exception] = []
    heard: list[Any] = []
    bus.on("error", errors.append)

    def hear(message: FeedMessage) -> None:
        heard.append(message.data)
        if message.data == "bad":
            raise ValueError(message.data)

    await bus.subscribe(chat, hear)
    await bus.publish(chat, "bad")
    await bus.publish(chat, "good")

    await comes_true(lambda: heard == ["bad", "good"])
    assert [str(error) for error in errors] == ["bad"]


async def test_a_callback_that_was_taken_off_hears_nothing_more(bus: Bus, chat: str) -> None:
    first: list[Any] = []
    second: list[Any] = []

    def hear_first(message: FeedMessage) -> None:
        first.append(message.data)

    def hear_second(message: FeedMessage) -> None:
        second.append(message.data)

    await bus.subscribe(chat, hear_first)
    await bus.subscribe(chat, hear_second)
    assert bus.unsubscribe(chat, hear_first)

    await bus.publish(chat, 1)

    await comes_true(lambda: second == [1])
    assert first == []


async def test_all_channels_may_be_followed_at_once(alone: Bus, connect: Connect, chat: str) -> None:
    other = await connect()
    await alone.publish(chat, "before")
    async with other.subscribe() as everything, other.subscribe(last_id=0) as all_of_it:
        await alone.publish(chat, 1)
        await alone.publish("/other", 2)

        assert await some(everything, 2) == [1, 2]
        assert await some(all_of_it, 3) == ["before", 1, 2]


async def test_many_subscribers_share_one_reader(bus: Bus, connect: Connect, chat: str) -> None:
    other = await connect()
    reads: list[str] = []
    read = other.link.store.read

    async def counted(log: str, **options: Any) -> Any:
        reads.append(log)
        return await read(log, **options)

    subscribers = [await other.subscribe(chat) for _ in range(20)]
    await bus.publish(chat, "warm")
    for subscriber in subscribers:
        assert await some(subscriber, 1) == ["warm"]
    other.link.store.read = counted  # type: ignore[method-assign]

    await bus.publish(chat, "hi")

    for subscriber in subscribers:
        assert await some(subscriber, 1) == ["hi"]
    assert set(reads) <= {FEEDS}


async def test_a_subscriber_that_is_too_slow_reads_from_the_store(
    bus: Bus, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_WAITING", 10)
    async with bus.subscribe(chat) as subscription:
        for number in range(100):
            await bus.publish(chat, number)

        assert await some(subscription, 100) == list(range(100))


async def test_a_subscriber_hears_which_messages_it_has_missed(
    connect: Connect, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_WAITING", 10)
    bus = await connect(feed_limits=FeedLimits(max_backlog_size=5))
    async with bus.subscribe(chat) as subscription, bus.subscribe(chat) as quick:
        await bus.publish(chat, 1)
        assert await some(subscription, 1) == [1]
        for number in range(2, 41):
            await bus.publish(chat, number)
            assert await some(quick, 1)

        with pytest.raises(MessagesMissed) as missed:
            await some(subscription, 1)

        assert (missed.value.channel, missed.value.first, missed.value.last) == (chat, 2, 35)
        assert await some(subscription, 5) == [36, 37, 38, 39, 40]


async def test_a_subscription_ends_when_it_is_closed_or_the_bus_disconnects(bus: Bus, chat: str) -> None:
    first, second = await bus.subscribe(chat), await bus.subscribe(chat)
    reading = asyncio.create_task(some(second, 1))
    first.close()
    assert [message async for message in first] == []

    await bus.disconnect()

    with pytest.raises(StopAsyncIteration):
        await reading


async def test_subscribers_go_on_when_everything_was_wiped(alone: Bus, chat: str) -> None:
    async with alone.subscribe(chat) as subscription, alone.subscribe() as everything:
        await alone.publish(chat, "before")
        assert await some(subscription, 1) == await some(everything, 1) == ["before"]

        await alone.feeds.reset()
        assert await alone.publish(chat, "after") == 1

        assert await some(subscription, 1) == await some(everything, 1) == ["after"]


async def test_subscribers_go_on_when_everything_was_forgotten(connect: Connect, chat: str) -> None:
    clock = FakeClock()
    bus = await connect(clock=clock, feed_limits=FeedLimits(max_backlog_age=100))
    async with bus.subscribe(chat) as subscription:
        await bus.publish(chat, "before")
        assert await some(subscription, 1) == ["before"]

        clock.advance(1000)
        assert await bus.backlog(chat) == []
        assert await bus.publish(chat, "after") == 2

        assert await some(subscription, 1) == ["after"]


async def test_a_bus_that_is_connected_again_publishes_and_subscribes_as_before(
    bus: Bus, other_bus: Bus, chat: str
) -> None:
    await bus.publish(chat, "before")
    await bus.disconnect()
    await bus.connect()

    async with bus.subscribe(chat, last_id=0) as subscription:
        assert await bus.publish(chat, "after") == 2
        assert await some(subscription, 2) == ["before", "after"]


# Sites


async def test_sites_have_channels_of_their_own_and_share_the_global_ones(connect: Connect, chat: str) -> None:
    site = "a"
    bus = await connect(site_id_lookup=lambda: site)
    everywhere = f"/global{chat}"
    local, everybody = await bus.feeds.local_subscribe(chat), await bus.subscribe(chat)
    shared = await bus.feeds.local_subscribe(everywhere)

    await bus.publish(chat, "of a")
    await bus.publish(chat, "of b", site_id="b")
    await bus.publish(everywhere, "of all", site_id="b")

    await bus.publish(chat, "of a again")
    assert await some(local, 2) == ["of a", "of a again"]
    messages = [await anext(everybody) for _ in range(3)]
    assert [(message.site_id, message.data) for message in messages] == [
        ("a", "of a"),
        ("b", "of b"),
        ("a", "of a again"),
    ]
    assert await some(shared, 1) == ["of all"]
    assert data_of(await bus.backlog(chat)) == ["of a", "of a again"]
    site = "b"
    assert data_of(await bus.backlog(chat)) == ["of b"]
    assert data_of(await bus.backlog(everywhere)) == ["of all"]
    assert await bus.last_id(chat, site_id="a") == 2


@pytest.mark.parametrize("name", ["user_ids", "group_ids"])
async def test_users_and_groups_of_one_site_are_not_those_of_all(bus: Bus, chat: str, name: str) -> None:
    with pytest.raises(InvalidArgument):
        bus.publish(f"/global{chat}", "?", **{name: [1]})
    assert await bus.publish(f"/global{chat}", "!", client_ids=["abc"]) == 1


async def test_a_site_that_appears_while_a_subscriber_is_behind_is_not_missed(
    bus: Bus, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_WAITING", 10)
    await bus.publish(chat, "too early", site_id="old")
    async with bus.subscribe(chat) as subscription:
        for number in range(30):
            await bus.publish(chat, number)
        await bus.publish(chat, "new", site_id="new")
        await bus.publish(chat, "in time", site_id="old")

        assert set(await some(subscription, 32)) == {*range(30), "new", "in time"}


# Switching


async def test_feeds_that_are_off_publish_nothing_and_accept_no_subscribers(bus: Bus, chat: str) -> None:
    subscription = await bus.subscribe(chat)
    bus.feeds.off()

    assert await bus.publish(chat, "unheard") == 0
    assert [message async for message in subscription] == []
    assert [message async for message in bus.subscribe(chat)] == []

    bus.feeds.on()
    assert await bus.publish(chat, "heard") == 1


async def test_feeds_may_be_off_for_subscribers_only(bus: Bus, chat: str) -> None:
    bus.feeds.off(disable_publish=False)

    assert await bus.publish(chat, "stored") == 1
    assert [message async for message in bus.subscribe(chat)] == []
