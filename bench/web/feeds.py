"""Publishing to a channel, and following it, in two processes."""

from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass

from bench.processes import Gate
from bench.timing import Span, Stopwatch
from onebus import Bus

CHANNEL = "/bench"
IN_FLIGHT = 5000
"""Publishes that are awaited later than they are made."""


@dataclass(frozen=True, slots=True)
class Publish:
    url: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        data = "x" * self.size
        async with Bus(self.url) as bus:
            await gate.passed()
            watch = Stopwatch(self.messages)
            stored: deque[Awaitable[int]] = deque()
            for _ in range(self.messages):
                stored.append(bus.publish(CHANNEL, data))
                if len(stored) >= IN_FLIGHT:
                    await stored.popleft()
            for one in stored:
                await one
            watch.count(self.messages)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class Follow:
    url: str
    messages: int

    async def run(self, gate: Gate) -> Span:
        async with Bus(self.url) as bus, bus.subscribe(CHANNEL) as subscription:
            await gate.passed()
            watch = Stopwatch(self.messages)
            received = 0
            async for message in subscription:
                received += 1
                if message.message_id == self.messages:
                    break
            watch.count(received)
            return watch.stop()
