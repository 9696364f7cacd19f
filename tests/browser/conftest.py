"""A browser for each process that runs tests, and for each test a profile of its own, which knows of no other."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, async_playwright, expect

from tests.browser.server import WebServer
from tests.services.process import MissingService, find_program

expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def chromium() -> str:
    try:
        return find_program("chromium", "chromium")
    except MissingService as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # Containers often have little shared memory.
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--disable-dev-shm-usage"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context()
    yield context
    await context.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., WebServer]]:
    """Starts servers with some options."""
    with ExitStack() as servers:
        yield lambda *options, secret="": servers.enter_context(WebServer(*options, secret=secret))


@pytest.fixture
def server(serve: Callable[..., WebServer]) -> WebServer:
    return serve()
