"""Ranges of ids, which are what Spark's tasks read. Planning them is arithmetic: no message is looked at for it."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from onebus.spark.logs import SourceLog
from onebus.stores.base import LogStat, Store

Spans = tuple[tuple[int, int], ...]
"""First and last ids."""


class Range(NamedTuple):
    """Some messages of one log, in one life of it."""

    log: SourceLog
    first: int
    end: int
    """The first id that does not belong to it."""
    epoch: str
    spans: Spans | None = None
    """Which of the messages are wanted; None if all are."""

    @property
    def size(self) -> int:
        if self.spans is not None:
            return sum(last - first + 1 for first, last in self.spans)
        return max(self.end - self.first, 0)

    def part(self, first: int, end: int) -> "Range":
        if self.spans is None:
            return self._replace(first=first, end=end)
        inside = ((max(start, first), min(last, end - 1)) for start, last in self.spans)
        return self._replace(first=first, end=end, spans=tuple(span for span in inside if span[0] <= span[1]))


class BusPartition(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)


async def stats_of(store: Store, logs: Sequence[SourceLog]) -> list[LogStat | None]:
    return list(await asyncio.gather(*(store.stat(log.name) for log in logs)))


async def split(store: Store, ranges: Sequence[Range], at_least: int) -> list[BusPartition]:
    """Return what is to be read as so many pieces or more, the large ranges cut, unless their batches are too few.

    They are cut between two batches, so that no batch is read by two tasks.
    """
    ranges = [wanted for wanted in ranges if wanted.size]
    total = sum(wanted.size for wanted in ranges)
    if len(ranges) >= at_least:
        return [BusPartition(wanted) for wanted in ranges]
    pieces = await asyncio.gather(*(_cut(store, wanted, -(-wanted.size * at_least // total)) for wanted in ranges))
    return [BusPartition(piece) for cut in pieces for piece in cut if piece.size]


async def _cut(store: Store, wanted: Range, parts: int) -> list[Range]:
    length = wanted.end - wanted.first
    rough = {wanted.first + length * number // parts for number in range(1, parts)}
    exact = await asyncio.gather(*(_next_batch(store, wanted.log.name, id_) for id_ in rough))
    edges = sorted({wanted.first, *(id_ for id_ in exact if wanted.first < id_ < wanted.end), wanted.end})
    return [wanted.part(first, end) for first, end in pairwise(edges)]


async def _next_batch(store: Store, log: str, id_: int) -> int:
    """Return the first id of a batch that is not before an id."""
    found = await store.read(log, after=id_ - 1, limit=1)
    if not found.batches:
        return id_
    batch = found.batches[0]
    return batch.first_id if batch.first_id >= id_ else batch.last_id + 1
