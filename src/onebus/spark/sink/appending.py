"""Carrying what was staged to where it belongs. It may be done again, by anybody: each batch arrives once."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, TypeVar

from onebus.errors import AlreadyAppended, Overloaded, StagingLost
from onebus.log.mark import Mark
from onebus.spark.sink.options import WriteOptions
from onebus.spark.sink.staging import Attempt
from onebus.spark.sink.targets import Outlet, Target, open_outlet
from onebus.stores.base import MEBIBYTE, Store

T = TypeVar("T")

AT_ONCE: Final = 32
"""How many calls of one sink the store has to serve at the same time."""
MAX_READ_BYTES: Final = 8 * MEBIBYTE
MAX_READ_MESSAGES: Final = 1_000_000
APPENDS_PER_BATCH: Final = 2**20
"""The numbers of a log's appends in one batch; those of the next batch follow."""


def check_numbers(attempts: Sequence[Attempt]) -> None:
    """Check that a batch needs no more numbers than it has: the next one would be taken for a repetition.

    Raises:
        Overloaded: it has too many appends.
    """
    appends = Counter(attempt.targets[index] for attempt in attempts for index in attempt.route)
    for target, count in appends.items():
        if count > APPENDS_PER_BATCH:
            raise Overloaded(f"A batch has {count} appends for {target.name!r}, which is too many. Write less at once.")


class Appending:
    """Appends the attempts of one batch to their targets, in their order."""

    def __init__(self, store: Store, options: WriteOptions, source: str, batch_id: int) -> None:
        self._store = store
        self._options = options
        self._source = source
        self._first_number = batch_id * APPENDS_PER_BATCH
        self._outlets: dict[Target, Outlet] = {}
        self._appended: Counter[Target] = Counter()

    async def run(self, attempts: Sequence[Attempt]) -> None:
        """Append what is not there yet.

        Raises:
            StagingLost: something is neither there nor staged.
        """
        targets = sorted({target for attempt in attempts for target in attempt.targets} - self._outlets.keys())
        outlets = await in_parallel(open_outlet(self._store, self._options, target) for target in targets)
        self._outlets |= zip(targets, outlets, strict=True)
        for together in _small_ones_together(attempts):
            await self._carry([_Cargo(self._store, attempt) for attempt in together])

    async def finish(self) -> None:
        """Do what remains to be done in the targets when all of it is there."""
        await in_parallel(outlet.finish() for outlet in self._outlets.values())

    async def unmark(self) -> None:
        """Let the targets forget who has written."""
        await in_parallel(self._store.unmark(outlet.log, self._source) for outlet in self._outlets.values())

    async def _carry(self, cargos: Sequence["_Cargo"]) -> None:
        unloaded = await in_parallel(cargo.unload() for cargo in cargos)
        while any(unloaded):
            lines: dict[Target, list[bytes]] = defaultdict(list)
            for target, blob in chain.from_iterable(unloaded):
                lines[target].append(blob)
            # The next ones are read while these are appended.
            _, unloaded = await asyncio.gather(
                in_parallel(self._append(target, blobs) for target, blobs in lines.items()),
                in_parallel(cargo.unload() for cargo in cargos),
            )

    async def _append(self, target: Target, blobs: Sequence[bytes]) -> None:
        for blob in blobs:
            number = self._first_number + self._appended[target]
            self._appended[target] += 1
            try:
                await self._outlets[target].append(blob, Mark(self._source, number))
            except AlreadyAppended:
                # It is there since before a crash, or somebody else is about to do the same.
                continue


class _Cargo:
    """What is left of an attempt to be appended."""

    def __init__(self, store: Store, attempt: Attempt) -> None:
        self._store = store
        self._attempt = attempt
        self._after = 0
        self._unloaded = 0

    async def unload(self) -> list[tuple[Target, bytes]]:
        """Return the next batches and their targets; none when there is nothing left."""
        log, targets, route = self._attempt.log, self._attempt.targets, self._attempt.route
        if self._unloaded == len(route):
            return []
        found = await self._store.read(log, after=self._after, limit=MAX_READ_MESSAGES, max_bytes=MAX_READ_BYTES)
        if not found.batches:
            raise StagingLost(f"Of what was staged in {log!r}, {len(route) - self._unloaded} batches are gone.")
        self._after = found.batches[-1].last_id
        first, self._unloaded = self._unloaded, self._unloaded + len(found.batches)
        indexes = route[first : self._unloaded]
        return [(targets[index], batch.blob) for index, batch in zip(indexes, found.batches, strict=True)]


def _small_ones_together(attempts: Sequence[Attempt]) -> Iterator[list[Attempt]]:
    """Yield attempts in their order, as many at once as do not take more room than a large one is allowed to."""
    together: list[Attempt] = []
    for attempt in attempts:
        if together and sum(one.size for one in together) + attempt.size > MAX_READ_BYTES:
            yield together
            together = []
        together.append(attempt)
    if together:
        yield together


async def in_parallel(works: Iterable[Awaitable[T]]) -> list[T]:
    """Do several things at a time, but not all of them, and return their outcomes in order."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def do(work: Awaitable[T]) -> T:
        async with slots:
            return await work

    return await asyncio.gather(*map(do, works))
