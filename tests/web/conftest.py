"""Tests ask for a door with settings of their own, in front of a bus in memory unless they are marked otherwise."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest

from onebus import Bus
from onebus.web import FeedSettings
from tests.backings import Backing
from tests.web.server import FeedServer, serving

OpenDoor = Callable[..., Awaitable[FeedServer]]


@pytest.fixture
def backing(request: pytest.FixtureRequest) -> Backing:
    """The place that the buses of one test share."""
    return Backing(getattr(request, "param", "memory"), request.getfixturevalue)


@pytest.fixture
async def bus(backing: Backing) -> AsyncIterator[Bus]:
    async with Bus(backing.url) as bus:
        yield bus


@pytest.fixture
async def open_door(bus: Bus) -> AsyncIterator[OpenDoor]:
    """Serves the feeds of the bus, with settings."""
    async with AsyncExitStack() as stack:

        async def opened(**settings: Any) -> FeedServer:
            return await stack.enter_async_context(serving(bus, FeedSettings(**settings)))

        yield opened


@pytest.fixture
async def web(open_door: OpenDoor) -> FeedServer:
    """A door as it is when nothing was chosen."""
    return await open_door()


@pytest.fixture
def chat() -> str:
    return f"/chat/{uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
async def _no_task_is_left() -> AsyncIterator[None]:
    """A door that was closed leaves nothing behind that still runs."""
    yield
    # A task that was cancelled ends in the next turn of the loop.
    await asyncio.sleep(0)
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("onebus")] == []
