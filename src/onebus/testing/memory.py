"""A bus that lives in the memory of a test, and is gone after it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from onebus.bus import Bus
    from onebus.objects.link import Clock


def memory_url() -> str:
    """Return the URL of a memory that nobody else uses; all buses of this process that are given it share it."""
    return f"memory://test-{uuid4().hex}"


@asynccontextmanager
async def memory_bus(url: str | None = None, *, clock: "Clock | None" = None) -> AsyncIterator["Bus"]:
    """Give a connected bus in memory: of its own, or the one of `url`.

    Another ``Bus(bus.url)`` in the same process is a second client of it.
    """
    from onebus.bus import Bus

    async with Bus(url or memory_url(), clock=clock) as bus:
        yield bus
