"""Follows topics and feeds as a stream, micro-batch by micro-batch."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from onebus.errors import InvalidOption
from onebus.spark.columns import Columns
from onebus.spark.connection import connect
from onebus.spark.logs import SourceLog
from onebus.spark.losses import report_lost
from onebus.spark.offsets import Offsets, Place, Position
from onebus.spark.options import ReadOptions
from onebus.spark.progress import Extents, begin_of, ends_of, extents_of, limited, lost_since, until
from onebus.spark.ranges import BusPartition, Range, split, stats_of
from onebus.spark.reading import offsets_at, read_partition
from onebus.stores.base import Store

Json = dict[str, Any]


class BusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Finds out what is new, and plans who reads it. One of these lives as long as the query; tasks get copies.

    The checkpoint of the query keeps how far each partition was read, and in which life of its log.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        Columns(schema)  # a column that does not exist is an error before anything is read
        self._options = options
        self._schema = schema
        self._logs: dict[Place, SourceLog] = {}
        self._newest: Offsets | None = None
        self._target: Offsets | None = None

    # Where it is

    def initialOffset(self) -> Json:  # noqa: N802
        connection = connect(self._options.urls)
        return connection.run(self._begin(connection.store)).to_json()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        begun = Offsets.from_json(start)
        extents = self._look()
        report_lost(list(lost_since(begun, extents)), fail=self._options.fail_on_data_loss)
        self._newest = ends_of(extents)
        if self._target is not None:
            extents = until(self._target, extents)
        if isinstance(limit, ReadMaxRows):
            extents = limited(begun, extents, limit.max_rows)
        return ends_of(extents).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = ends_of(self._look())

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        return None if self._newest is None else self._newest.to_json()

    async def _begin(self, store: Store) -> Offsets:
        starting = self._options.starting
        logs = await self._options.wanted.logs(store)
        starting.check_places(logs)
        stats = await stats_of(store, logs)
        offsets = await offsets_at(store, starting, logs, stats)
        begun = Offsets()
        for (place, extent), offset in zip(extents_of(logs, stats).items(), offsets, strict=True):
            if offset > extent.end:
                raise InvalidOption(
                    f"The option {starting.option} begins at {offset} in {extent.log}, "
                    f"whose next message will be {extent.end}."
                )
            begun[place] = Position(offset, extent.epoch)
        return begun

    def _look(self) -> Extents:
        connection = connect(self._options.urls)
        return connection.run(self._extents(connection.store))

    async def _extents(self, store: Store) -> Extents:
        logs = await self._options.wanted.logs(store, all_must_exist=False)
        extents = extents_of(logs, await stats_of(store, logs))
        self._logs = {place: extent.log for place, extent in extents.items()}
        return extents

    # What is read

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        connection = connect(self._options.urls)
        return connection.run(self._plan(connection.store, Offsets.from_json(start), Offsets.from_json(end)))

    async def _plan(self, store: Store, start: Offsets, end: Offsets) -> list[BusPartition]:
        if not end.keys() <= self._logs.keys():
            await self._extents(store)
        ranges = [
            Range(
                self._logs.get(place) or self._options.wanted.log(*place),
                begin_of(start, place, position.epoch),
                position.offset,
                position.epoch,
            )
            for place, position in end.items()
        ]
        return await split(store, ranges, self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._schema)
