"""Whether claiming costs more in a long log than in a short one."""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.consumers import LEASE_SECONDS, claimed_payloads
from bench.messages import payloads
from bench.processes import Gate
from bench.producers import wall_clock_ms
from onebus.log.batch import Entry, encode
from onebus.stores import create_store
from onebus.stores.base import Store
from onebus.stores.following import Claimant, claimant

BATCH_MESSAGES = 1000
SHORT_MESSAGES = 10_000
FILLERS = 16
WARM_UP_ROUNDS = 20
"""A connection that was just opened still fills its cache and its journal, with memory that nobody has touched before.
The short logs' connection has done so while it filled them."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Messages claimed and settled per second."""

    in_long_log: float
    in_short_log: float


@dataclass(frozen=True, slots=True)
class CompareLengths:
    """Claims in turn from a long log and from short ones that live elsewhere, a batch at a time.

    Taking turns lets both suffer alike from whatever else the machine does.
    """

    long_url: str
    filling_url: str
    """The long log again, in a store that may fill it as carelessly as it can."""
    short_url: str
    stored: int
    size: int
    rounds: int

    async def run(self, gate: Gate) -> Lengths:
        blob = encode([Entry(value) for value in payloads(BATCH_MESSAGES, self.size)], now_ms=wall_clock_ms())
        long_seconds: list[float] = []
        short_seconds: list[float] = []
        async with create_store(self.long_url) as far, create_store(self.short_url) as near:
            await gate.passed()
            async with create_store(self.filling_url) as filling:
                await fill(filling, "long", blob, self.stored // BATCH_MESSAGES)
            # The disk still has most of that to write, which is not what is compared here.
            await asyncio.to_thread(os.sync)
            for number in range(WARM_UP_ROUNDS + self.rounds):
                name = f"short{number}"
                await fill(near, name, blob, SHORT_MESSAGES // BATCH_MESSAGES)
                short_seconds.append(await _seconds_to_consume(near, name))
                long_seconds.append(await _seconds_to_consume(far, "long"))
        return Lengths(in_long_log=_typical_rate(long_seconds), in_short_log=_typical_rate(short_seconds))


def _typical_rate(seconds: Sequence[float]) -> float:
    """The rate of the median round: filling a long log leaves servers with work that now and then gets in the way."""
    return SHORT_MESSAGES / median(seconds[WARM_UP_ROUNDS:])


async def fill(store: Store, log: str, blob: bytes, times: int) -> None:
    """Append the same batch again and again."""
    numbers = iter(range(times))
    async with asyncio.TaskGroup() as group:
        for _ in range(FILLERS):
            group.create_task(_append_again(store, log, blob, numbers))


async def _append_again(store: Store, log: str, blob: bytes, numbers: Iterator[int]) -> None:
    for _ in numbers:
        await store.append(log, blob)


async def _seconds_to_consume(store: Store, log: str) -> float:
    async with claimant(store, log, limit=BATCH_MESSAGES, lease_seconds=LEASE_SECONDS, owner="bench") as claims:
        begin = time.monotonic()
        await _consume(claims)
        return time.monotonic() - begin


async def _consume(claims: Claimant) -> None:
    count = 0
    while count < SHORT_MESSAGES:
        claim = await claims.next()
        count += len(claimed_payloads(claim))
        claims.done(claim.leases)
    await claims.flush()
