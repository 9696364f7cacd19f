"""Tests that ask for a bus run on every store; those that ask for a local one are about the objects alone.

The kinds that end with "-blocking" give the blocking objects instead, behind an adapter.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from onebus import Bus
from tests.backings import BUS_KINDS, Backing
from tests.clock import FakeClock
from tests.objects.blocking import BLOCKING_KINDS, create_bus, skip_async_only

KINDS = (*BUS_KINDS, *BLOCKING_KINDS)

Connect = Callable[..., Awaitable[Bus]]


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in KINDS])
def backing(request: pytest.FixtureRequest) -> Backing:
    """The place that the buses of one test share, as several processes would share a server."""
    skip_async_only(request)
    return Backing(request.param, request.getfixturevalue)


@pytest.fixture
async def connect(backing: Backing) -> AsyncIterator[Connect]:
    """Connects any number of buses to the place, and disconnects them after the test."""
    buses: list[Bus] = []

    async def connected(**options: Any) -> Bus:
        bus = create_bus(backing, **options)
        await bus.connect()
        buses.append(bus)
        return bus

    yield connected
    for bus in buses:
        await bus.disconnect()


@pytest.fixture
async def bus(connect: Connect) -> Bus:
    return await connect()


@pytest.fixture
async def other_bus(connect: Connect, bus: Bus) -> Bus:
    """The bus of another process."""
    return await connect()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def timed_bus(connect: Connect, clock: FakeClock) -> Bus:
    """A bus whose time is the `clock` of the test."""
    return await connect(clock=clock)


@pytest.fixture
async def local_bus() -> AsyncIterator[Bus]:
    async with Bus(f"memory://{uuid4().hex}") as bus:
        yield bus


@pytest.fixture
def name() -> str:
    return f"q-{uuid4().hex}"


@pytest.fixture
async def other_local_bus(local_bus: Bus) -> AsyncIterator[Bus]:
    """Another bus in the same memory."""
    async with Bus(local_bus.url) as bus:
        yield bus


@pytest.fixture(autouse=True)
async def _no_task_is_left() -> AsyncIterator[None]:
    """A bus that was disconnected leaves nothing behind that still runs."""
    yield
    # A task that was cancelled ends in the next turn of the loop.
    await asyncio.sleep(0)
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("onebus")] == []
