"""The chat example, as two people see it."""

import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.services import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

EXAMPLE = Path(__file__).parents[2] / "examples" / "chat"


class ChatServer(Server):
    """The example, run as its readers run it."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def command(self) -> Sequence[str]:
        return [sys.executable, str(EXAMPLE), f"sqlite:///{self.folder}/chat.db", "--port", str(self.port)]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.url) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@asynccontextmanager
async def visitor(browser: Browser, chat: ChatServer, name: str, room: str = "") -> AsyncIterator[Page]:
    """Somebody with a browser of their own, who has come in."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{chat.url}#{room}")
    await page.get_by_label("Your name").fill(name)
    await page.get_by_role("button", name="Come in").click()
    await expect(page.get_by_role("link", name=room or "Lobby")).to_be_visible()
    yield page
    await context.close()


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Say something").fill(text)
    await page.get_by_role("button", name="Send").click()


async def test_two_people_talk_in_two_rooms(browser: Browser, chat: ChatServer) -> None:
    async with visitor(browser, chat, "Ann") as ann, visitor(browser, chat, "Ben") as ben:
        await expect(ann.locator("#people li")).to_have_text(["AAnn", "BBen"])
        await say(ann, "hello Ben")
        await expect(ben.locator("#remarks .body p:last-child")).to_have_text(["hello Ben"])
        await say(ben, "hello Ann")
        await expect(ann.locator("#remarks .body p:last-child")).to_have_text(["hello Ben", "hello Ann"])

        await ben.get_by_role("link", name="Kitchen").click()
        await expect(ann.locator("#people li")).to_have_text(["AAnn"])
        await say(ben, "the soup is ready")
        await expect(ann.get_by_role("link", name="Kitchen").locator(".unread")).to_have_text("1")
        await ann.get_by_role("link", name="Kitchen").click()

        await expect(ann.locator("#remarks .body p:last-child")).to_have_text(["the soup is ready"])
        await expect(ben.locator("#people li")).to_have_text(["AAnn", "BBen"])


async def test_who_comes_later_reads_what_was_said_before_in_rooms_that_others_made(
    browser: Browser, chat: ChatServer
) -> None:
    async with visitor(browser, chat, "Ann") as ann:
        await ann.get_by_label("Name of another room").fill("Attic")
        await ann.get_by_label("Name of another room").press("Enter")
        await expect(ann.locator("#room")).to_have_text("Attic")
        await say(ann, "nobody here")
        await expect(ann.locator("#remarks li")).to_have_count(1)

    async with visitor(browser, chat, "Ben") as ben:
        await ben.get_by_role("link", name="Attic").click()
        await expect(ben.locator("#remarks .body p:last-child")).to_have_text(["nobody here"])
        await expect(ben.locator("#people li")).to_have_text(["BBen"])


async def test_what_people_write_is_text_and_nothing_else(browser: Browser, chat: ChatServer) -> None:
    nasty = '<img src=x onerror="document.title=1"><b>bold</b>'
    async with visitor(browser, chat, "Ann") as ann, visitor(browser, chat, "Ben") as ben:
        await say(ann, nasty)

        await expect(ben.locator("#remarks .body p:last-child")).to_have_text([nasty])
        assert await ben.locator("#remarks img, #remarks .body p:last-child b").count() == 0


async def test_the_chat_goes_on_after_the_server_was_killed(browser: Browser, chat: ChatServer) -> None:
    async with visitor(browser, chat, "Ann") as ann, visitor(browser, chat, "Ben") as ben:
        await say(ann, "before")
        await expect(ben.locator("#remarks .body p:last-child")).to_have_text(["before"])

        chat.kill()
        await expect(ben.locator("#connection")).to_have_text("connecting…")
        chat.start()
        chat.wait_ready()
        await expect(ben.locator("#connection")).to_have_text("websocket")
        await say(ann, "after")

        await expect(ben.locator("#remarks .body p:last-child")).to_have_text(["before", "after"])
