"""What the client promises, in a real browser: every message once and in order, or a word about what is missing."""

from collections.abc import Callable

import pytest
from playwright.async_api import BrowserContext

from tests.browser.server import WebServer
from tests.browser.tab import Tab
from tests.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("transport", ["websocket", "streaming", "long-polling", "polling"])
async def test_each_transport_brings_the_backlog_and_what_comes(
    context: BrowserContext, server: WebServer, transport: str
) -> None:
    await server.publish("/chat", 1, 2, 3)
    tab = await Tab.open(context, server.url, {"transports": [transport]})
    await tab.subscribe("/chat", 1)
    await tab.uses(transport)

    for number in range(4, 24):
        await server.publish("/chat", number)

    assert await tab.has_seen(22) == list(range(2, 24))


async def test_a_killed_server_that_comes_back_leaves_no_silent_gap(context: BrowserContext, server: WebServer) -> None:
    tab = await Tab.open(context, server.url)
    await tab.subscribe("/chat")
    await tab.uses("websocket")
    await server.publish("/chat", 1)
    await tab.has_seen(1)

    server.kill()
    await server.come_back()
    await server.publish("/chat", 2, 3)
    await tab.has_seen(3)
    await tab.uses("websocket")
    await server.publish("/chat", 4)

    assert await tab.has_seen(4) == [1, 2, 3, 4]
    assert await tab.told("gap") == []


async def test_messages_that_were_forgotten_meanwhile_are_told_as_a_gap(
    context: BrowserContext, serve: Callable[..., WebServer]
) -> None:
    server = serve("--backlog", "3")
    tab = await Tab.open(context, server.url)
    await tab.subscribe("/chat")
    await server.publish("/chat", 1)
    await tab.has_seen(1)

    await context.set_offline(True)
    await tab.page.evaluate("bus.stop()")
    for number in range(2, 10):
        await server.publish("/chat", number)
    await context.set_offline(False)
    await tab.page.evaluate("bus.start()")
    seen = await tab.has_seen(2)

    [gap] = await tab.told("gap")
    assert gap == {"channel": "/chat", "firstMissed": 2, "lastMissed": seen[1] - 1, "reset": False}
    assert await tab.has_seen(9 - seen[1] + 2) == [1, *range(seen[1], 10)]


async def test_a_wiped_store_is_told_as_a_reset(context: BrowserContext, server: WebServer) -> None:
    tab = await Tab.open(context, server.url)
    await tab.subscribe("/chat")
    await server.publish("/chat", "old 1", "old 2")
    await tab.has_seen(2)

    server.kill()
    server.wipe()
    await server.come_back()
    await server.publish("/chat", "new 1")

    assert await tab.has_seen(3) == ["old 1", "old 2", "new 1"]
    assert await tab.told("gap") == [{"channel": None, "reset": True}]


async def test_where_websockets_are_refused_messages_are_streamed(
    context: BrowserContext, serve: Callable[..., WebServer]
) -> None:
    server = serve("--without-websockets")
    tab = await Tab.open(context, server.url)
    await tab.subscribe("/chat")
    await tab.uses("streaming")

    await server.publish("/chat", 1)
    await tab.has_seen(1)
    await server.publish("/chat", 2)

    assert await tab.has_seen(2) == [1, 2]
    assert [event["transport"] for event in await tab.told("transport")] == ["streaming"]


async def test_a_denied_channel_is_told_and_others_are_not_affected(
    context: BrowserContext, serve: Callable[..., WebServer]
) -> None:
    server = serve("--denied", "/secret")
    tab = await Tab.open(context, server.url)
    await tab.page.evaluate("bus.subscribe('/secret', (data) => seen.push(data))")
    await tab.subscribe("/chat")

    await server.publish("/secret", "no")
    await server.publish("/chat", "yes")

    assert await tab.has_seen(1) == ["yes"]
    assert await tab.told("denied") == [{"channel": "/secret"}]


@pytest.mark.parametrize("transport", ["websocket", "streaming"])
async def test_a_client_that_knows_the_secret_is_let_in(
    context: BrowserContext, serve: Callable[..., WebServer], transport: str
) -> None:
    server = serve(secret="Öffne dich, Sesam")
    settings = {"secret": "Öffne dich, Sesam", "transports": [transport]}
    tab = await Tab.open(context, f"{server.url}healthz", settings)
    await tab.subscribe("/chat")
    await tab.uses(transport)

    await server.publish("/chat", 1)

    assert await tab.has_seen(1) == [1]


async def test_channels_can_be_left_and_entered_again_over_one_connection(
    context: BrowserContext, server: WebServer
) -> None:
    tab = await Tab.open(context, server.url)
    await tab.subscribe("/chat")
    await tab.subscribe("/news")
    await server.publish("/chat", 1)
    await tab.has_seen(1)

    await tab.page.evaluate("bus.unsubscribe('/chat')")
    await server.publish("/chat", 2)
    await server.publish("/news", "news")
    await tab.has_seen(2)
    await tab.subscribe("/chat", 0)
    await server.publish("/chat", 3)

    assert await tab.has_seen(5) == [1, "news", 1, 2, 3]
    assert await server.held() == {"websocket": 1}


async def test_a_client_that_was_offline_reads_what_it_missed(context: BrowserContext, server: WebServer) -> None:
    tab = await Tab.open(context, server.url, {"transports": ["streaming"]})
    await tab.subscribe("/chat")
    await tab.uses("streaming")

    await context.set_offline(True)
    await server.publish("/chat", 1, 2)
    await context.set_offline(False)
    await server.publish("/chat", 3)

    assert await tab.has_seen(3) == [1, 2, 3]


async def test_a_stopped_client_frees_its_place_on_the_server(context: BrowserContext, server: WebServer) -> None:
    tab = await Tab.open(context, server.url)
    await tab.subscribe("/chat")
    await tab.uses("websocket")

    await tab.page.evaluate("bus.stop()")

    async def nobody_is_held() -> bool:
        return await server.held() == {}

    await eventually(nobody_is_held)
