"""What tests hear of the bus and its objects."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from onebus.events import Emitter
from onebus.message import Message
from onebus.objects.queue import Queue
from tests.eventually import eventually

PATIENCE_SECONDS = 40.0


class Heard:
    """Writes down events as they happen: the name alone, or with what came along."""

    def __init__(self, emitter: Emitter, *events: str) -> None:
        self.events: list[Any] = []
        for event in events:
            emitter.on(event, self._writer_of(event))

    def _writer_of(self, event: str) -> Callable[..., None]:
        return lambda *values: self.events.append((event, *values) if values else event)

    async def until(self, *expected: Any) -> None:
        """Return when exactly these events have happened."""
        try:
            await comes_true(lambda: self.events[: len(expected)] == list(expected))
        finally:
            assert self.events == list(expected)


async def comes_true(condition: Callable[[], object], *, deadline_seconds: float = PATIENCE_SECONDS) -> None:
    async def is_true() -> bool:
        return bool(condition())

    await eventually(is_true, deadline_seconds=deadline_seconds)


def errors_of(queue: Emitter) -> list[Exception]:
    errors: list[Exception] = []
    queue.on("error", errors.append)
    return errors


async def take(queue: Queue, count: int, **options: Any) -> list[Message]:
    """Consume so many messages; those that need it are acknowledged."""
    taken: list[Message] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for message in queue.consume(max=count, **options):
            taken.append(message)
            await message.ack()
    return taken


async def take_data(queue: Queue, count: int, **options: Any) -> list[Any]:
    return [message.data for message in await take(queue, count, **options)]


def data_of(messages: Sequence[Message]) -> list[Any]:
    return [message.data for message in messages]
