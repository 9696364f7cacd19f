"""Moving what was staged to where it belongs. It may be done again, by anybody: each batch arrives once."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from onebus.errors import AlreadyAppended, Overloaded
from onebus.log.mark import Mark
from onebus.spark.sink.options import WriteOptions
from onebus.spark.sink.staging import Attempt
from onebus.spark.sink.targets import Outlet, Target, open_outlet
from onebus.stores.base import Store

T = TypeVar("T")

AT_ONCE: Final = 32
"""How many calls of one sink the store has to serve at the same time."""
TRANSFER_BATCHES: Final = 8
"""So many batches are moved in one step, which nobody else can interrupt: a few megabytes. Each step has a number, so
this is a part of what an unfinished decision means."""
APPENDS_PER_BATCH: Final = 2**20
"""The numbers of a log's appends in one batch; those of the next batch follow."""


class Load(NamedTuple):
    """Batches of one staging log that are moved together."""

    staging: str
    batches: Sequence[int]


def loads_of(attempts: Iterable[Attempt]) -> Mapping[Target, Sequence[Load]]:
    """Return what is moved to each target, in order: always the same for the same attempts.

    Raises:
        Overloaded: it takes more numbers than a batch has, so that the next one would be taken for a repetition.
    """
    loads: dict[Target, list[Load]] = defaultdict(list)
    for cargo in (cargo for attempt in attempts for cargo in attempt.cargos):
        of_target: dict[int, list[int]] = defaultdict(list)
        for index, last_id in cargo.batches:
            of_target[index].append(last_id)
        for index, last_ids in of_target.items():
            loads[cargo.targets[index]] += (
                Load(cargo.log, last_ids[start : start + TRANSFER_BATCHES])
                for start in range(0, len(last_ids), TRANSFER_BATCHES)
            )
    for target, its in loads.items():
        if len(its) > APPENDS_PER_BATCH:
            raise Overloaded(
                f"A batch has {len(its)} appends to {target.name!r}, which is too many. Write less at once."
            )
    return loads


class Appending:
    """Appends the attempts of one batch to their targets, in their order."""

    def __init__(self, store: Store, options: WriteOptions, source: str, batch_id: int) -> None:
        self._store = store
        self._options = options
        self._source = source
        self._first_number = batch_id * APPENDS_PER_BATCH
        self._outlets: Sequence[Outlet] = ()

    async def run(self, attempts: Sequence[Attempt]) -> None:
        """Append what is not there yet.

        Raises:
            StagingLost: something is neither there nor staged.
        """
        loads = loads_of(attempts)
        self._outlets = await in_parallel(open_outlet(self._store, self._options, target) for target in loads)
        works = zip(self._outlets, loads.values(), strict=True)
        await in_parallel(self._append(outlet, its) for outlet, its in works)

    async def finish(self) -> None:
        """Do what remains to be done in the targets when all of it is there."""
        await in_parallel(outlet.finish() for outlet in self._outlets)

    async def unmark(self) -> None:
        """Let the targets forget who has written."""
        await in_parallel(self._store.unmark(outlet.log, self._source) for outlet in self._outlets)

    async def _append(self, outlet: Outlet, loads: Sequence[Load]) -> None:
        for number, load in enumerate(loads, self._first_number):
            try:
                await outlet.append(load.staging, load.batches, Mark(self._source, number))
            except AlreadyAppended:
                # It is there since before a crash, or somebody else is about to do the same.
                continue


async def in_parallel(works: Iterable[Awaitable[T]]) -> list[T]:
    """Do several things at a time, but not all of them, and return their outcomes in order."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def do(work: Awaitable[T]) -> T:
        async with slots:
            return await work

    return await asyncio.gather(*map(do, works))
