"""The ordinary ways to bring Python and Spark together: a tuple for each row, and a call for each row."""

import asyncio
import sys
from collections.abc import Iterator, Sequence

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from onebus import Bus

# Spark's programs do not find the benchmarks.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

ROWS_AT_ONCE = 10_000


class RowDataSource(DataSource):
    """``format("rows")``: reads a topic with the bus as any program does, and yields tuples."""

    @classmethod
    def name(cls) -> str:
        return "rows"

    def schema(self) -> str:
        return "value binary, offset bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowReader(self.options["url"], self.options["topic"], int(self.options["partitions"]))


class RowReader(DataSourceReader):
    def __init__(self, url: str, topic: str, partitions: int) -> None:
        self._url = url
        self._topic = topic
        self._partitions = partitions

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes, int]]:
        with asyncio.Runner() as runner:
            bus = Bus(self._url)
            runner.run(bus.connect())
            topic, last = bus.topic(self._topic), 0
            while messages := runner.run(topic.read(partition.value, last, ROWS_AT_ONCE)):
                for message in messages:
                    yield message.data, message.id
                last = messages[-1].id
            runner.run(bus.disconnect())


class PushEach:
    """What ``foreachPartition`` calls: pushes one row after the other."""

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._queue = queue

    def __call__(self, rows: Iterator[Row]) -> None:
        asyncio.run(self._push(rows))

    async def _push(self, rows: Iterator[Row]) -> None:
        async with Bus(self._url) as bus, bus.queue(self._queue) as queue:
            for row in rows:
                await queue.push(bytes(row.value))
