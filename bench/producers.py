"""Jobs that append to a log."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from bench.messages import payloads
from bench.processes import Gate
from bench.timing import Span, Stopwatch
from onebus.log.batch import count_of
from onebus.log.writer import AppendBatch, LogWriter, WriterLimits
from onebus.stores import create_store
from onebus.stores.base import Store

CALL_MESSAGES = 100
"""How many messages one call of `append_many` brings."""


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Append:
    """Appends messages through the coalescing writer, in lists of `CALL_MESSAGES`."""

    url: str
    log: str
    messages: int
    size: int

    async def run(self, gate: Gate) -> Span:
        async with create_store(self.url) as store:
            calls = repeat(payloads(CALL_MESSAGES, self.size), self.messages // CALL_MESSAGES)
            await gate.passed()
            watch = Stopwatch(self.messages)
            writer = LogWriter(_counting(store, watch), clock=wall_clock_ms)
            async with asyncio.TaskGroup() as group:
                for _ in range(_callers_in_flight(self.size)):
                    group.create_task(self._call_again(writer, calls))
            return watch.stop()

    async def _call_again(self, writer: LogWriter, calls: Iterator[list[bytes]]) -> None:
        for values in calls:
            await writer.append_values(self.log, values)


@dataclass(frozen=True, slots=True)
class Drop:
    """Removes a log, so that what was measured does not weigh on what is measured next."""

    url: str
    log: str

    async def run(self, gate: Gate) -> None:
        async with create_store(self.url) as store:
            await gate.passed()
            await store.drop(self.log)


def _callers_in_flight(size: int) -> int:
    """As many as fill two batches: one is on its way while the next one gathers."""
    limits = WriterLimits()
    batch_messages = min(limits.max_batch_messages, limits.max_batch_bytes // size)
    return max(2, 2 * batch_messages // CALL_MESSAGES)


def _counting(store: Store, watch: Stopwatch) -> AppendBatch:
    async def append(log: str, blob: bytes) -> int:
        first_id = await store.append(log, blob)
        watch.count(count_of(blob))
        return first_id

    return append
