"""Puts messages into a bus, from tests that wait for Spark and so are not async."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from onebus import Bus
from onebus.log.batch import Entry, encode
from onebus.objects.topics.names import log_of

T = TypeVar("T")


def on_bus(url: str, work: Callable[[Bus], Awaitable[T]]) -> T:
    """Do something with a bus, and disconnect it."""

    async def do() -> T:
        async with Bus(url) as bus:
            return await work(bus)

    return asyncio.run(do())


def create_topic(url: str, name: str, *, partitions: int = 2, **options: Any) -> None:
    on_bus(url, lambda bus: bus.topic(name, partitions=partitions, **options).create())


def append(url: str, name: str, *batches: Sequence[Entry], partition: int = 0) -> None:
    """Append to a partition batches that are exactly so."""

    async def work(bus: Bus) -> None:
        description = await bus.topic(name).describe()
        for entries in batches:
            blob = encode(entries, now_ms=1_700_000_000_000)
            await bus.link.store.append(log_of(name, partition), blob, retain=description.retention)

    on_bus(url, work)


def numbers(first: int, end: int) -> list[Entry]:
    """The messages "first", …, "end - 1"."""
    return [Entry(str(number).encode()) for number in range(first, end)]


def read(spark: SparkSession, url: str, **options: object) -> DataFrame:
    given = {name: str(option) for name, option in options.items()}
    return spark.read.format("onebus").options(url=url, **given).load()


def texts(frame: DataFrame) -> list[str]:
    """The values of a data frame, in order."""
    return [row.value for row in frame.selectExpr("cast(value as string) value", "offset").sort("offset").collect()]
