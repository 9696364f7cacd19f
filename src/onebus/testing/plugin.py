"""Fixtures for pytest, which loads this module by itself; nothing else does.

``onebus_bus`` and ``onebus_sync_bus`` are two clients of one memory, which only their test uses. A test that also asks
for ``onebus_clock`` decides what time it is for them.

The bus is loaded when a test asks for it: pytest also loads this where onebus is merely installed.
"""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from onebus.testing.clock import FakeClock
from onebus.testing.memory import memory_bus, memory_url

if TYPE_CHECKING:
    from onebus.bus import Bus
    from onebus.sync import Bus as SyncBus

async_fixture: Any
try:
    import pytest_asyncio
except ImportError:
    async_fixture = pytest.fixture
else:
    async_fixture = pytest_asyncio.fixture


@pytest.fixture
def onebus_url() -> str:
    """The URL of the memory that the buses of a test share."""
    return memory_url()


@pytest.fixture
def onebus_clock() -> FakeClock:
    """The time of the buses of a test that asks for it; it stands still until it is advanced."""
    return FakeClock()


@async_fixture  # type: ignore[untyped-decorator]
async def onebus_bus(request: pytest.FixtureRequest, onebus_url: str) -> AsyncIterator["Bus"]:
    """A connected bus in memory, for async tests; needs pytest-asyncio."""
    async with memory_bus(onebus_url, clock=_clock_of(request)) as bus:
        yield bus


@pytest.fixture
def onebus_sync_bus(request: pytest.FixtureRequest, onebus_url: str) -> Iterator["SyncBus"]:
    """A connected bus in memory, for blocking tests."""
    from onebus.sync import Bus as SyncBus

    with SyncBus(onebus_url, clock=_clock_of(request)) as bus:
        yield bus


def _clock_of(request: pytest.FixtureRequest) -> FakeClock | None:
    if "onebus_clock" not in request.fixturenames:
        return None
    clock: FakeClock = request.getfixturevalue("onebus_clock")
    return clock
