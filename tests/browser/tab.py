"""A tab of the browser, with a client in it."""

from collections.abc import Mapping
from typing import Any, Self

from playwright.async_api import BrowserContext, Page

from tests.eventually import eventually

_START = """async (settings) => {
    const { MessageBus } = await import("/onebus.js");
    window.bus = new MessageBus(settings);
    window.seen = [];
    window.told = [];
    for (const name of ["gap", "denied", "transport"]) bus.on(name, (event) => told.push([name, event]));
    bus.start();
}"""

SETTINGS = {"callbackInterval": 200, "backgroundCallbackInterval": 200, "minHiddenPollInterval": 50}
"""Quicker than usual, so that the tests are."""


class Tab:
    """One page of a browser. It remembers the data of all messages in the order in which they come."""

    def __init__(self, page: Page) -> None:
        self.page = page

    @classmethod
    async def open(cls, context: BrowserContext, url: str, settings: Mapping[str, object] | None = None) -> Self:
        """Open a tab and start a client in it."""
        page = await context.new_page()
        await page.goto(url)
        await page.evaluate(_START, {**SETTINGS, "maxPollInterval": 500, **(settings or {})})
        return cls(page)

    async def subscribe(self, channel: str, last_id: int = -1) -> None:
        """Subscribe, and wait until the client knows where it stands."""
        script = "([channel, lastId]) => bus.subscribe(channel, (data) => seen.push(data), lastId)"
        await self.page.evaluate(script, [channel, last_id])
        await eventually(lambda: self.is_ready(channel))

    async def is_ready(self, channel: str) -> bool:
        diagnostics = await self.diagnostics()
        return channel in diagnostics["positions"] and channel not in diagnostics["behind"]

    async def seen(self) -> list[Any]:
        messages: list[Any] = await self.page.evaluate("seen")
        return messages

    async def has_seen(self, count: int) -> list[Any]:
        """Wait until so many messages have come, and return all of them."""

        async def enough() -> list[Any] | None:
            messages = await self.seen()
            return messages if len(messages) >= count else None

        messages = await eventually(enough, deadline_seconds=30)
        assert messages is not None
        return messages

    async def told(self, event: str) -> list[dict[str, Any]]:
        """What the client had to say under this name."""
        events: list[tuple[str, dict[str, Any]]] = await self.page.evaluate("told")
        return [content for name, content in events if name == event]

    async def diagnostics(self) -> dict[str, Any]:
        diagnostics: dict[str, Any] = await self.page.evaluate("bus.diagnostics()")
        return diagnostics

    async def uses(self, transport: str) -> None:
        """Wait until messages arrive in this way."""

        async def does() -> bool:
            return bool((await self.diagnostics())["transport"] == transport)

        await eventually(does)

    async def is_leader(self) -> bool:
        return bool((await self.diagnostics())["isLeader"])

    async def hide(self) -> None:
        """Let the page believe that it is in the background; a browser without a screen shows all of them."""
        await self._be("hidden")

    async def show(self) -> None:
        await self._be("visible")

    async def _be(self, state: str) -> None:
        script = """(state) => {
            Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
        await self.page.evaluate(script, state)
