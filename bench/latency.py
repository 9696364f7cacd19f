"""From the call of append to a reader that waits in another process."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.messages import Stamper, age_ms
from bench.processes import Crew, Gate, Job
from bench.producers import wall_clock_ms
from onebus.log.batch import Entry, decode
from onebus.log.writer import LogWriter
from onebus.stores import create_store
from onebus.stores.following import follow

WARM_UP = 10
"""One message in so many is sent first, and not counted."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How many messages are sent, and how far apart."""

    name: str
    count: int
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Latency:
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class SendStamps:
    url: str
    log: str
    size: int
    pace: Pace

    async def run(self, gate: Gate) -> None:
        async with create_store(self.url) as store:
            writer = LogWriter(store.append, clock=wall_clock_ms)
            stamper = Stamper(self.size)
            await gate.passed()
            begin = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for number in range(self.pace.count):
                    pause = begin + number * self.pace.pause_seconds - time.monotonic()
                    if pause > 0:
                        await asyncio.sleep(pause)
                    group.create_task(writer.append(self.log, Entry(stamper.payload())))


@dataclass(frozen=True, slots=True)
class FollowStamps:
    url: str
    log: str
    pace: Pace

    async def run(self, gate: Gate) -> list[float]:
        ages: list[float] = []
        # Watching from before the start, so that nothing is set up while messages are under way.
        async with create_store(self.url) as store, store.watch(self.log):
            await gate.passed()
            async for found in follow(store, self.log, after=0):
                now_ns = time.monotonic_ns()
                ages += [age_ms(value, now_ns) for batch in found.batches for value in decode(batch.blob).payloads()]
                if len(ages) >= self.pace.count:
                    break
        return ages


def latency_of(crew: Crew, url: str, sender: Job[None], reader: Job[list[float]]) -> Latency:
    _, ages = crew.at_once(url, sender, reader)
    return summary(ages)


def summary(ages: Sequence[float]) -> Latency:
    return percentiles(ages[len(ages) // WARM_UP :])


def percentiles(ages: Sequence[float]) -> Latency:
    counted = sorted(ages)
    return Latency(p50_ms=_percentile(counted, 0.5), p99_ms=_percentile(counted, 0.99))


def _percentile(ascending: Sequence[float], share: float) -> float:
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]
