"""Waiting for a condition instead of sleeping."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(condition: Callable[[], Awaitable[T]], *, deadline_seconds: float = 40.0) -> T:
    """Return the first true value of `condition`; fail when none comes before the deadline."""
    async with asyncio.timeout(deadline_seconds):
        while not (value := await condition()):
            await asyncio.sleep(0.01)
        return value
