"""Handles the messages of different keys at the same time, and those of one key one after the other."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from onebus.message import Message
from onebus.objects.topics.batch import TopicBatch

MessageHandler = Callable[[Message], Awaitable[Any]]


class KeyedWork:
    """Calls a handler for each message. A slow key holds up nobody but those who have the same.

    Messages without a key are in order too, within their partition.
    """

    def __init__(self, handler: MessageHandler, concurrency: int) -> None:
        self._handler = handler
        self._slots = asyncio.Semaphore(concurrency)
        self._waiting: dict[Hashable, deque[tuple[Message, TopicBatch]]] = {}
        self._left: dict[TopicBatch, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def failed(self) -> asyncio.Future[None]:
        """Fails with what a handler raised; then nothing more is handled."""
        return self._failed

    async def take(self, batch: TopicBatch) -> None:
        """Begin to handle a batch; it is finished when all its messages are handled. Returns when there is room."""
        self._left[batch] = len(batch)
        for message in batch:
            key = (batch.topic, batch.partition, message.key)
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.append((message, batch))
                continue
            await self._slots.acquire()
            waiting = self._waiting[key] = deque([(message, batch)])
            task = asyncio.create_task(self._work(key, waiting), name=f"onebus-key {key}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def finish(self) -> None:
        """Return when all that was taken is handled."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        """Handle nothing more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, key: Hashable, waiting: "deque[tuple[Message, TopicBatch]]") -> None:
        try:
            while waiting:
                message, batch = waiting.popleft()
                await self._handler(message)
                self._left[batch] -= 1
                if not self._left[batch]:
                    del self._left[batch]
                    batch.finish()
        finally:
            self._waiting.pop(key, None)
            self._slots.release()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)
