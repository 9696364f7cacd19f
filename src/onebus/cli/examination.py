"""What a doctor does with a store: look at its settings, and measure it from outside."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from onebus.errors import BusError
from onebus.log.batch import Entry, encode
from onebus.stores import Store, StoreOptions, create_store
from onebus.stores.base import Inspection
from onebus.stores.switchboard import Watch

DEADLINE_SECONDS: Final = 5.0
APPENDS: Final = 50
WAKE_UPS: Final = 20
MESSAGE_BYTES: Final = 100
PHASE_SECONDS: Final = 4.0
"""A slow store is measured with fewer messages rather than for longer."""
PATIENCE_SECONDS: Final = 1.0
"""A wake-up that has not come by then counts as missed."""
SCRATCH_TTL_SECONDS: Final = 60.0
"""When even the cleaning up is interrupted, the store forgets the scratch log by itself."""


@dataclass(frozen=True, slots=True)
class Latency:
    """How long something took, over a number of tries."""

    p50_ms: float
    p99_ms: float
    samples: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Latency":
        ordered = sorted(seconds)
        p50, p99 = (ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.50, 0.99))
        return cls(round(p50 * 1000, 3), round(p99 * 1000, 3), len(ordered))


@dataclass(frozen=True, slots=True)
class Examination:
    """A store's settings, and how fast it is seen from here."""

    inspection: Inspection
    append: Latency
    wake_up: Latency | None
    """From the call of append until a reader of another client was woken; None when none ever was."""
    missed_wake_ups: int


async def examine(url: str) -> Examination:
    """Open a store, look at it and measure it in a log of its own, which is dropped in the end.

    Cancellation: the log is dropped all the same.

    Raises:
        BusError: the store cannot be used.
    """
    options = StoreOptions(deadline_seconds=DEADLINE_SECONDS)
    async with create_store(url, options) as store, create_store(url, options) as reader, _scratch_log(store) as log:
        inspection = await store.inspect()
        append = await _measure_append(store, log)
        woken, missed = await _measure_wake_up(store, reader, log)
    return Examination(inspection, append, Latency.of(woken) if woken else None, missed)


@asynccontextmanager
async def _scratch_log(store: Store) -> AsyncIterator[str]:
    log = f"onebus-doctor-{uuid4().hex}"
    try:
        await store.touch(log, ttl_seconds=SCRATCH_TTL_SECONDS, create=True)
        yield log
    finally:
        if store.health.is_online:
            with suppress(BusError):
                await store.drop(log)


async def _measure_append(store: Store, log: str) -> Latency:
    await store.append(log, _message())
    seconds: list[float] = []
    end = time.monotonic() + PHASE_SECONDS
    while len(seconds) < APPENDS and (not seconds or time.monotonic() < end):
        batch = _message()
        start = time.perf_counter()
        await store.append(log, batch)
        seconds.append(time.perf_counter() - start)
    return Latency.of(seconds)


async def _measure_wake_up(store: Store, reader: Store, log: str) -> tuple[list[float], int]:
    """Return the latencies of the wake-ups that came, and how many did not."""
    woken: list[float] = []
    missed = 0
    end = time.monotonic() + PHASE_SECONDS
    async with reader.watch(log) as watch:
        while len(woken) + missed < WAKE_UPS and time.monotonic() < end:
            after = (await reader.read(log, after=0, limit=1)).last_id
            start = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                arrival = tasks.create_task(_arrival(reader, log, watch, after))
                await store.append(log, _message())
            arrived = arrival.result()
            if arrived is None:
                missed += 1
            else:
                woken.append(arrived - start)
    return woken, missed


async def _arrival(reader: Store, log: str, watch: Watch, after: int) -> float | None:
    """Return when the wake-up came that had a message to show, or None if it did not come."""
    while await watch.wait(PATIENCE_SECONDS):
        now = time.perf_counter()
        if (await reader.read(log, after=after)).batches:
            return now
    return None


def _message() -> bytes:
    return encode([Entry(b"x" * MESSAGE_BYTES)], now_ms=time.time_ns() // 1_000_000)
