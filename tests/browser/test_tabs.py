"""The tabs of a browser share one connection, whatever becomes of the tab that holds it."""

import asyncio
from collections.abc import Callable

import pytest
from playwright.async_api import BrowserContext

from tests.browser.server import WebServer
from tests.browser.tab import Tab
from tests.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def leader_and_other(*tabs: Tab) -> tuple[Tab, Tab]:
    """Which of two tabs holds the connection, and which one does not."""

    async def leaders() -> list[Tab]:
        return [tab for tab in tabs if await tab.is_leader()]

    [leader] = await eventually(leaders)
    [other] = [tab for tab in tabs if tab is not leader]
    return leader, other


async def test_two_tabs_have_one_connection_and_both_get_everything(context: BrowserContext, server: WebServer) -> None:
    first = await Tab.open(context, server.url)
    second = await Tab.open(context, server.url)
    await first.subscribe("/chat")
    await second.subscribe("/chat")
    await second.subscribe("/news")

    await server.publish("/chat", 1, 2)
    await first.has_seen(2)
    await second.has_seen(2)
    await server.publish("/news", "news")

    assert await second.has_seen(3) == [1, 2, "news"]
    assert await first.seen() == [1, 2]
    assert await server.held() == {"websocket": 1}


async def test_a_tab_that_comes_later_reads_its_own_backlog(context: BrowserContext, server: WebServer) -> None:
    first = await Tab.open(context, server.url)
    await first.subscribe("/chat")
    await server.publish("/chat", 1, 2, 3)
    await first.has_seen(3)

    second = await Tab.open(context, server.url)
    await second.subscribe("/chat", 1)
    await second.has_seen(2)
    third = await Tab.open(context, server.url)
    await third.subscribe("/chat", -2)
    await server.publish("/chat", 4)

    assert await first.has_seen(4) == [1, 2, 3, 4]
    assert await second.has_seen(3) == [2, 3, 4]
    assert await third.has_seen(2) == [3, 4]
    assert await server.held() == {"websocket": 1}


@pytest.mark.parametrize("end", ["closed", "crashed"])
async def test_when_the_leading_tab_is_gone_another_goes_on_without_loss_or_duplicates(
    context: BrowserContext, server: WebServer, end: str
) -> None:
    tabs = [await Tab.open(context, server.url), await Tab.open(context, server.url)]
    for tab in tabs:
        await tab.subscribe("/chat")
    leader, other = await leader_and_other(*tabs)

    async def publish() -> None:
        for number in range(1, 101):
            await server.publish("/chat", number)

    publishing = asyncio.create_task(publish())
    await other.has_seen(20)
    if end == "closed":
        await leader.page.close()
    else:
        session = await context.new_cdp_session(leader.page)
        crash = asyncio.create_task(session.send("Page.crash"))
        await leader.page.wait_for_event("crash")
        crash.cancel()
    await publishing

    assert await other.has_seen(100) == list(range(1, 101))
    assert await other.is_leader()
    assert await other.told("gap") == []


async def test_a_leader_that_is_frozen_hands_over_and_catches_up_when_it_thaws(
    context: BrowserContext, server: WebServer
) -> None:
    tabs = [await Tab.open(context, server.url), await Tab.open(context, server.url)]
    for tab in tabs:
        await tab.subscribe("/chat")
    leader, other = await leader_and_other(*tabs)

    await leader.page.evaluate("document.dispatchEvent(new Event('freeze'))")
    await eventually(other.is_leader)
    await server.publish("/chat", 1, 2)
    await other.has_seen(2)
    assert await leader.seen() == []
    await leader.page.evaluate("document.dispatchEvent(new Event('resume'))")
    await server.publish("/chat", 3)

    assert await other.has_seen(3) == [1, 2, 3]
    assert await leader.has_seen(3) == [1, 2, 3]
    assert await server.held() == {"websocket": 1}


async def test_a_leader_that_hangs_is_replaced_and_catches_up_when_it_is_back(
    context: BrowserContext, server: WebServer
) -> None:
    settings = {"heartbeatInterval": 300}
    tabs = [await Tab.open(context, server.url, settings), await Tab.open(context, server.url, settings)]
    for tab in tabs:
        await tab.subscribe("/chat")
    leader, other = await leader_and_other(*tabs)
    debugger = await context.new_cdp_session(leader.page)
    await debugger.send("Debugger.enable")

    await debugger.send("Debugger.pause")
    await eventually(other.is_leader)
    await server.publish("/chat", 1, 2)
    await other.has_seen(2)
    await debugger.send("Debugger.resume")
    await server.publish("/chat", 3)

    assert await other.has_seen(3) == [1, 2, 3]
    assert await leader.has_seen(3) == [1, 2, 3]
    assert not await leader.is_leader()


async def test_tabs_of_different_users_do_not_share(context: BrowserContext, server: WebServer) -> None:
    first = await Tab.open(context, server.url, {"sharing": "Ann"})
    second = await Tab.open(context, server.url, {"sharing": "Ben"})
    third = await Tab.open(context, server.url, {"sharing": False})
    for tab in (first, second, third):
        await tab.subscribe("/chat")
        await tab.uses("websocket")

    assert await server.held() == {"websocket": 3}


async def test_a_channel_is_left_when_the_last_tab_that_wants_it_is_closed(
    context: BrowserContext, server: WebServer
) -> None:
    first = await Tab.open(context, server.url)
    await first.subscribe("/chat")
    second = await Tab.open(context, server.url)
    await second.subscribe("/news")
    await server.publish("/news", 1)
    await second.has_seen(1)

    await second.page.close()

    async def nobody_reads_news() -> bool:
        return await server.followed() == {"/chat"}

    await eventually(nobody_reads_news)


async def test_a_hidden_page_polls_now_and_then_and_catches_up(
    context: BrowserContext, serve: Callable[..., WebServer]
) -> None:
    server = serve("--hold", "0.5")
    tab = await Tab.open(context, server.url, {"transports": ["streaming", "polling"]})
    await tab.subscribe("/chat")
    await tab.uses("streaming")

    await tab.hide()
    await tab.uses("polling")
    await server.publish("/chat", 1, 2)
    await tab.has_seen(2)
    await tab.show()
    await tab.uses("streaming")
    await server.publish("/chat", 3)

    assert await tab.has_seen(3) == [1, 2, 3]


async def test_as_long_as_one_tab_is_visible_requests_are_held_for_all(
    context: BrowserContext, serve: Callable[..., WebServer]
) -> None:
    server = serve("--hold", "0.5")
    settings = {"transports": ["streaming", "polling"], "backgroundCallbackInterval": 60_000}
    tabs = [await Tab.open(context, server.url, settings), await Tab.open(context, server.url, settings)]
    for tab in tabs:
        await tab.subscribe("/chat")
        await tab.uses("streaming")
    leader, other = await leader_and_other(*tabs)

    await leader.hide()
    await other.hide()
    await leader.uses("polling")
    await other.show()

    await leader.uses("streaming")
    await other.uses("streaming")


async def test_a_hidden_page_keeps_its_websocket(context: BrowserContext, server: WebServer) -> None:
    tab = await Tab.open(context, server.url)
    await tab.subscribe("/chat")
    await tab.uses("websocket")

    await tab.hide()
    await server.publish("/chat", 1)

    assert await tab.has_seen(1) == [1]
    assert [event["transport"] for event in await tab.told("transport")] == ["websocket"]
