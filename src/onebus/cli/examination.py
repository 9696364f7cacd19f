"""What a doctor does with a store: look at its settings, and measure it from outside."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from onebus.errors import BusError, StoreUnavailable
from onebus.log.batch import Entry, encode
from onebus.stores import Store, StoreOptions, create_store
from onebus.stores.base import Finding, Verdict
from onebus.stores.switchboard import Watch

DEADLINE_SECONDS: Final = 5.0
APPENDS: Final = 50
MESSAGE_BYTES: Final = 100
MEASURING_SECONDS: Final = 5.0
"""A slow store is measured with fewer messages rather than for longer."""
PATIENCE_SECONDS: Final = 1.0
"""A wake-up that has not come by then counts as missed."""
MISSES_TOLERATED: Final = 3
"""After so many, wake-ups are no longer waited for."""
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

    product: str
    version: str
    findings: Sequence[Finding]
    append: Latency
    wake_up: Latency | None
    """From the call of append until a reader of another client was woken; None if that never happened."""
    missed_wake_ups: int
    is_shared: bool
    """Whether another client sees the same logs."""

    @property
    def is_healthy(self) -> bool:
        return all(finding.verdict is not Verdict.BAD for finding in self.findings)


@dataclass(slots=True)
class _Times:
    """What was measured, in seconds."""

    append: list[float] = field(default_factory=list)
    wake_up: list[float] = field(default_factory=list)
    missed: int = 0
    is_shared: bool = True


async def examine(url: str) -> Examination:
    """Open a store, look at it and measure it in a log of its own, which is dropped in the end.

    Cancellation: the log is dropped all the same.

    Raises:
        BusError: the store cannot be used.
    """
    options = StoreOptions(deadline_seconds=DEADLINE_SECONDS)
    async with create_store(url, options) as store, create_store(url, options) as reader, _scratch_log(store) as log:
        inspection = await store.inspect()
        times = await _measure(store, reader, log)
    return Examination(
        product=inspection.product,
        version=inspection.version,
        findings=inspection.findings,
        append=Latency.of(times.append),
        wake_up=Latency.of(times.wake_up) if times.wake_up else None,
        missed_wake_ups=times.missed,
        is_shared=times.is_shared,
    )


@asynccontextmanager
async def _scratch_log(store: Store) -> AsyncIterator[str]:
    log = f"onebus-doctor-{uuid4().hex}"
    is_away = False
    try:
        await store.touch(log, ttl_seconds=SCRATCH_TTL_SECONDS, create=True)
        yield log
    except StoreUnavailable:
        is_away = True
        raise
    finally:
        if not is_away:
            with suppress(BusError):
                await store.drop(log)


async def _measure(store: Store, reader: Store, log: str) -> _Times:
    times = _Times()
    # The first one is not counted: connections and statements are prepared with it.
    await store.append(log, _message())
    times.is_shared = await reader.stat(log) is not None
    end = time.monotonic() + MEASURING_SECONDS
    async with reader.watch(log) as watch:
        while len(times.append) < APPENDS and (not times.append or time.monotonic() < end):
            batch = _message()
            start = time.perf_counter()
            message_id = await store.append(log, batch)
            times.append.append(time.perf_counter() - start)
            if not times.is_shared or times.missed == MISSES_TOLERATED:
                continue
            arrived = await _arrival(reader, watch, message_id)
            if arrived is None:
                times.missed += 1
            else:
                times.wake_up.append(arrived - start)
    return times


async def _arrival(reader: Store, watch: Watch, message_id: int) -> float | None:
    """Return when the wake-up came after which the message could be read, or None if it did not come."""
    while await watch.wait(PATIENCE_SECONDS):
        now = time.perf_counter()
        # A wake-up may also be a late one of an earlier message.
        if (await reader.read(watch.log, after=message_id - 1)).batches:
            return now
    return None


def _message() -> bytes:
    return encode([Entry(b"x" * MESSAGE_BYTES)], now_ms=time.time_ns() // 1_000_000)
