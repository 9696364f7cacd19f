"""Async iteration as blocking code sees it: several items at a time, so that not each of them changes threads."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from typing import Final, Generic, TypeVar

from onebus.sync.portal import Portal

T = TypeVar("T")

MAX_ITEMS: Final = 1000
"""How many items are brought along at once."""


class Batches(Generic[T]):
    """Takes from an async generator what is there. Used in the loop."""

    def __init__(self, items: AsyncGenerator[T]) -> None:
        self._items = items
        self._next: asyncio.Task[T] | None = None

    async def take(self, timeout: float | None) -> list[T]:
        """Wait for an item, and return it with those that need no waiting; nothing when there will be none in time."""
        await asyncio.wait([self._begin()], timeout=timeout)
        taken: list[T] = []
        while len(taken) < MAX_ITEMS and self._begin().done():
            try:
                taken.append(self._begin().result())
            except StopAsyncIteration:
                break
            except Exception:
                if taken:
                    # It is raised when the items before it have been handed over.
                    break
                raise
            self._next = None
            self._begin()
            await asyncio.sleep(0)
        return taken

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        await self._items.aclose()

    def _begin(self) -> "asyncio.Task[T]":
        if self._next is None:
            self._next = asyncio.create_task(self._advance())
        return self._next

    async def _advance(self) -> T:
        return await anext(self._items)


def iterate(portal: Portal, items: AsyncGenerator[T], timeout: float | None = None) -> Generator[T]:
    """Iterate over an async generator of the loop, until it ends or nothing comes for `timeout` seconds."""
    batches = Batches(items)
    try:
        while taken := portal.call(batches.take(timeout)):
            yield from taken
    finally:
        portal.finish(batches.close())
