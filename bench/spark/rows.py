"""The ordinary ways to bring Python and Spark together: a tuple for each row, and a call for each row.

Whoever writes a source by hand keeps each message in a row of a table, or in an entry of a stream of Redis, and yields
rows with the columns that messages have: Spark does not tell such a source which of them are wanted.
"""

import asyncio
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

import redis
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from onebus import Bus

# Spark's programs do not find the benchmarks.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

ROWS_AT_ONCE = 10_000

WIDE = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
NARROW = "value binary, offset bigint"
TIME_MS = 1_772_366_400_000

Found = Iterator[tuple[bytes, int, int]]
"""The value, the id and the time of each message."""


def keep_rows(place: str, messages: Iterable[bytes], partitions: int) -> None:
    """Keep messages one by one, in a file of SQLite or in Redis, spread evenly."""
    (_keep_in_redis if place.startswith("redis:") else _keep_in_sqlite)(place, messages, partitions)


def _keep_in_sqlite(file: str, messages: Iterable[bytes], partitions: int) -> None:
    numbered = ((index % partitions, index // partitions + 1, TIME_MS, value) for index, value in enumerate(messages))
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE message (part, id, time_ms, value, PRIMARY KEY (part, id)) WITHOUT ROWID")
    connection.executemany("INSERT INTO message VALUES (?, ?, ?, ?)", numbered)
    connection.commit()
    connection.close()


def _keep_in_redis(url: str, messages: Iterable[bytes], partitions: int) -> None:
    remaining = enumerate(messages)
    with redis.Redis.from_url(url) as client:
        while some := list(islice(remaining, ROWS_AT_ONCE)):
            pipeline = client.pipeline(transaction=False)
            for index, value in some:
                pipeline.xadd(
                    _stream(index % partitions), {"v": value, "t": TIME_MS}, id=f"0-{index // partitions + 1}"
                )
            pipeline.execute()


def _stream(partition: int) -> str:
    return f"rows-{partition}"


class RowDataSource(DataSource):
    """``format("rows")``: reads messages that are kept one by one, and yields a tuple for each of them."""

    @classmethod
    def name(cls) -> str:
        return "rows"

    def schema(self) -> str:
        return WIDE

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowReader(self.options["place"], int(self.options["partitions"]), is_wide=len(schema) > 2)


class RowReader(DataSourceReader):
    def __init__(self, place: str, partitions: int, *, is_wide: bool) -> None:
        self._place = place
        self._partitions = partitions
        self._is_wide = is_wide

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        number = partition.value
        found = (_from_redis if self._place.startswith("redis:") else _from_sqlite)(self._place, number)
        if self._is_wide:
            for value, id_, time_ms in found:
                yield None, value, "clicks", number, id_, datetime.fromtimestamp(time_ms / 1000, UTC)
        else:
            for value, id_, _ in found:
                yield value, id_


def _from_sqlite(file: str, partition: int) -> Found:
    connection = sqlite3.connect(file)
    yield from connection.execute("SELECT value, id, time_ms FROM message WHERE part = ? ORDER BY id", (partition,))
    connection.close()


def _from_redis(url: str, partition: int) -> Found:
    with redis.Redis.from_url(url) as client:
        last = "0-0"
        while entries := client.xrange(_stream(partition), f"({last}", count=ROWS_AT_ONCE):
            for id_, fields in entries:
                yield fields[b"v"], int(id_[2:]), int(fields[b"t"])
            last = entries[-1][0].decode()


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
