"""Publishing to a topic, and consuming it in a group that commits."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from bench.messages import payloads
from bench.processes import Gate
from bench.timing import Span, Stopwatch
from onebus import Bus
from onebus.objects.topics.consumer import TopicConsumer
from onebus.objects.topics.topic import Topic

TOPIC: Final = "bench"
GROUP: Final = "group"
CALL_MESSAGES: Final = 100
CALLS_IN_FLIGHT: Final = 100
SETTLED_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Publish:
    """Publishes in lists of `CALL_MESSAGES`, of which several are under way at the same time."""

    url: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        values = payloads(CALL_MESSAGES, self.size)
        async with Bus(self.url) as bus:
            topic = bus.topic(TOPIC)
            await topic.create()
            await gate.passed()
            return await self._publish(topic, values)

    async def _publish(self, topic: Topic, values: list[bytes]) -> Span:
        watch = Stopwatch(self.messages)
        async with asyncio.TaskGroup() as group:
            publishing: deque[asyncio.Task[Any]] = deque()
            while watch.messages < self.messages:
                publishing.append(group.create_task(topic.publish_many(values)))
                watch.count(len(values))
                if len(publishing) >= CALLS_IN_FLIGHT:
                    await publishing.popleft()
        return watch.stop()


@dataclass(frozen=True, slots=True)
class Consume:
    """Consumes everything, alone in its group; each batch is committed when it is done."""

    url: str
    messages: int

    async def run(self, gate: Gate) -> Span:
        async with Bus(self.url) as bus, bus.consume(TOPIC, group=GROUP) as consumer:
            await gate.passed()
            watch = Stopwatch(self.messages)
            async for batch in consumer:
                watch.count(sum(1 for message in batch if message.data))
                if watch.messages >= self.messages:
                    break
            return watch.stop()


@dataclass(frozen=True, slots=True)
class Work:
    """Works on each message for a while, as one of several members, on more messages than can be done in time."""

    url: str
    seconds: float
    work_seconds: float
    partitions: int
    """This member's share."""

    async def run(self, gate: Gate) -> Span:
        async with Bus(self.url) as bus, bus.consume(TOPIC, group=GROUP) as consumer:
            await self._settle(consumer)
            await gate.passed()
            # It ends in time even if its partitions have nothing left.
            asyncio.get_running_loop().call_later(self.seconds, consumer.stop)
            watch = Stopwatch(1)
            async for batch in consumer:
                for message in batch:
                    self._work(message.data)
                watch.count(len(batch))
            return watch.stop()

    async def _settle(self, consumer: TopicConsumer) -> None:
        """Return when this member has had its share for a while: one that takes more passes it on its way."""
        since = time.perf_counter()
        while time.perf_counter() - since < SETTLED_SECONDS:
            if sum(map(len, consumer.assignment.values())) != self.partitions:
                since = time.perf_counter()
            await asyncio.sleep(0.01)

    def _work(self, _: bytes) -> None:
        ends_at = time.perf_counter() + self.work_seconds
        while time.perf_counter() < ends_at:
            pass
