"""Reads what is in the bus now, as a data frame."""

import asyncio
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from onebus.errors import InvalidOption
from onebus.objects.moments import first_since
from onebus.spark.columns import Columns
from onebus.spark.connection import connect
from onebus.spark.logs import DEAD, QUEUE, SourceLog
from onebus.spark.losses import missing_between, report_lost
from onebus.spark.offsets import EARLIEST, LATEST, Boundary
from onebus.spark.options import ReadOptions
from onebus.spark.ranges import BusPartition, Range, split, stats_of
from onebus.spark.slices import read_range
from onebus.stores.base import LogStat, Store


class BusReader(DataSourceReader):
    """Plans once which messages are read, and reads the same ones each time its data frame is used."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        Columns(self._schema)  # a column that does not exist is an error before anything is read
        connection = connect(self._options.urls)
        return connection.run(_plan(connection.store, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._schema)


def read_partition(partition: InputPartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield what one task reads."""
    # Spark makes a partition without a range where nothing is to be read.
    if isinstance(partition.value, Range):
        connection = connect(options.urls)
        yield from read_range(connection, partition.value, Columns(schema), fail=options.fail_on_data_loss)


async def offsets_at(
    store: Store, boundary: Boundary, logs: Sequence[SourceLog], stats: Sequence[LogStat | None]
) -> list[int]:
    """Return the offsets at which reading some logs begins or ends."""
    found = (_offset_at(store, boundary, log, stat) for log, stat in zip(logs, stats, strict=True))
    return list(await asyncio.gather(*found))


async def _offset_at(store: Store, boundary: Boundary, log: SourceLog, stat: LogStat | None) -> int:
    first, end = (1, 1) if stat is None else (stat.first_id, stat.last_id + 1)
    if boundary.time_ms is not None:
        return max(first, await first_since(store, log.name, boundary.time_ms, end - 1))
    offset = boundary.of(log)
    return {EARLIEST: first, LATEST: end}.get(offset, max(offset, 1))


async def _plan(store: Store, options: ReadOptions) -> list[BusPartition]:
    logs = await options.wanted.logs(store)
    if options.wanted.kind in (QUEUE, DEAD):
        ranges = [await _unfinished(store, log) for log in logs]
    else:
        ranges = await _between(store, logs, options)
    return await split(store, ranges, options.min_partitions)


async def _unfinished(store: Store, log: SourceLog) -> Range:
    stat = await store.stat(log.name)
    spans = tuple((span.first, span.last) for span in await store.unfinished(log.name))
    if stat is None or not spans:
        return Range(log, 1, 1, "", ())
    return Range(log, spans[0][0], spans[-1][1] + 1, stat.epoch, spans)


async def _between(store: Store, logs: list[SourceLog], options: ReadOptions) -> list[Range]:
    for boundary in (options.starting, options.ending):
        boundary.check_places(logs)
    stats = await stats_of(store, logs)
    firsts, ends = await asyncio.gather(
        offsets_at(store, options.starting, logs, stats), offsets_at(store, options.ending, logs, stats)
    )
    missing: list[str] = []
    ranges: list[Range] = []
    for log, stat, first, end in zip(logs, stats, firsts, ends, strict=True):
        if first > end:
            raise InvalidOption(
                f"The option {options.starting.option} begins at {first} in {log}, which is behind its end at {end}."
            )
        missing += _missing(log, stat, first, end)
        ranges.append(Range(log, first, end, "" if stat is None else stat.epoch))
    report_lost(missing, fail=options.fail_on_data_loss)
    return ranges


def _missing(log: SourceLog, stat: LogStat | None, first: int, end: int) -> Iterator[str]:
    oldest, next_id = (1, 1) if stat is None else (stat.first_id, stat.last_id + 1)
    if first < min(oldest, end) and not log.may_have_gaps:
        yield missing_between(log, first, min(oldest, end))
    if end > next_id:
        yield missing_between(log, max(first, next_id), end)
