"""Our side: queues of onebus, used one message at a time as a program would use them."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from bench.latency import Pace
from bench.processes import Gate, Job
from bench.sides import MESSAGE_BYTES, Cycle, Load, Traffic
from bench.timing import Span, Stopwatch
from onebus import Bus, Message
from onebus.objects.queue import Queue

MESSAGE: Final = "0123456789abcdef" * (MESSAGE_BYTES // 16)
TRAFFIC_WINDOW: Final = 200
"""Pushes of a queue that are on their way at once when a process has many queues. With fewer, batches are small; with
a thousand, consumers of the same process fall behind for several cycles."""
SINGLE_WINDOW: Final = 20_000
"""And when it has only one."""
AWAITED: Final = 100
"""Then one of so many pushes is awaited: they are stored in order, and the queue counts what was."""


class OnebusSide:
    name = "onebus"

    def traffic(self, url: str, traffic: Traffic) -> Job[list[Cycle]]:
        return RunTraffic(url, traffic)

    def push(self, url: str, load: Load) -> Job[Span]:
        return Push(url, load)

    def consume(self, url: str, load: Load) -> Job[Span]:
        return Consume(url, load)

    def send(self, url: str, queue: str, pace: Pace) -> Job[None]:
        return Send(url, queue, pace)

    def receive(self, url: str, queue: str, pace: Pace) -> Job[list[float]]:
        return Receive(url, queue, pace)


@dataclass(slots=True)
class Counts:
    pushed: int = 0
    consumed: int = 0


@dataclass(frozen=True, slots=True)
class RunTraffic:
    """Pushes to and consumes from all queues in one event loop."""

    url: str
    traffic: Traffic

    async def run(self, gate: Gate) -> list[Cycle]:
        counts = Counts()
        async with attached(self.url, self.traffic.queues) as queues:
            await gate.passed()
            tasks = [asyncio.create_task(self._consume(queue, counts)) for queue in queues]
            tasks += [asyncio.create_task(self._push(queue, counts)) for queue in queues]
            measuring = asyncio.create_task(self._measure(counts))
            done, _ = await asyncio.wait([*tasks, measuring], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # What ended before its time has failed, and says why.
            for ended in done:
                ended.result()
            return measuring.result()

    async def _measure(self, counts: Counts) -> list[Cycle]:
        cycles: list[Cycle] = []
        end = time.monotonic()
        for _ in range(self.traffic.cycles):
            start, pushed, consumed = end, counts.pushed, counts.consumed
            await asyncio.sleep(self.traffic.cycle_seconds)
            end = time.monotonic()
            cycles.append(Cycle(counts.pushed - pushed, counts.consumed - consumed, end - start))
        return cycles

    async def _consume(self, queue: Queue, counts: Counts) -> None:
        if self.traffic.reliable:
            async for message in queue.consume(reliable=True):
                counts.consumed += 1
                await message.ack()
        else:
            async for _ in queue.consume():
                counts.consumed += 1

    async def _push(self, queue: Queue, counts: Counts) -> None:
        """Keep pushes on their way, and count each one when it is stored."""
        waiting: deque[Awaitable[int]] = deque()
        while True:
            waiting.append(queue.push(MESSAGE))
            if len(waiting) == TRAFFIC_WINDOW:
                await waiting.popleft()
                counts.pushed += 1


@dataclass(frozen=True, slots=True)
class Push:
    url: str
    load: Load

    async def run(self, gate: Gate) -> Span:
        async with attached(self.url, [self.load.queue]) as (queue,):
            await gate.passed()
            watch = Stopwatch(self.load.messages)
            waiting: deque[Awaitable[int]] = deque()
            for number in range(self.load.messages):
                receipt = queue.push(MESSAGE)
                if number % AWAITED == 0:
                    waiting.append(receipt)
                    if len(waiting) == SINGLE_WINDOW // AWAITED:
                        await waiting.popleft()
            await receipt
            if queue.pushed != self.load.messages:
                raise RuntimeError(f"of {self.load.messages} messages {queue.pushed} were pushed")
            watch.count(self.load.messages)
            return watch.stop()


@dataclass(frozen=True, slots=True)
class Consume:
    url: str
    load: Load

    async def run(self, gate: Gate) -> Span:
        async with attached(self.url, [self.load.queue]) as (queue,):
            await gate.passed()
            watch = Stopwatch(self.load.messages)
            async for _ in queue.consume(max=self.load.messages):
                watch.messages += 1
            return watch.stop()


@dataclass(frozen=True, slots=True)
class Send:
    url: str
    queue: str
    pace: Pace

    async def run(self, gate: Gate) -> None:
        async with attached(self.url, [self.queue]) as (queue,):
            await gate.passed()
            receipts: list[Awaitable[int]] = []
            begin = time.monotonic()
            for number in range(self.pace.count):
                pause = begin + number * self.pace.pause_seconds - time.monotonic()
                if pause > 0:
                    await asyncio.sleep(pause)
                receipts.append(queue.push(_stamp()))
            for receipt in receipts:
                await receipt


@dataclass(frozen=True, slots=True)
class Receive:
    url: str
    queue: str
    pace: Pace

    async def run(self, gate: Gate) -> list[float]:
        async with attached(self.url, [self.queue]) as (queue,):
            await gate.passed()
            return [_age_ms(message) async for message in queue.consume(max=self.pace.count)]


def _stamp() -> str:
    """The time by the clock that all processes of a machine share."""
    return str(time.monotonic_ns()).zfill(MESSAGE_BYTES)


def _age_ms(message: Message) -> float:
    return (time.monotonic_ns() - int(message.data)) / 1e6


@asynccontextmanager
async def attached(url: str, names: Sequence[str]) -> AsyncIterator[list[Queue]]:
    async with Bus(url) as bus:
        queues = [bus.queue(name) for name in names]
        await asyncio.gather(*(queue.attach() for queue in queues))
        yield queues
        for queue in queues:
            await queue.detach()
