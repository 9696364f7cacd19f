"""A micro-batch that crashes half-way and is run again, with rows in other tasks, leaves each message once."""

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onebus import Bus
from tests.backings import Backing
from tests.spark.bus import append, create_topic, numbers, on_bus
from tests.spark.conftest import STORES
from tests.spark.crashing import POINTS, CrashingDataSource

MESSAGES = 3000
OUT_PARTITIONS = 3
WAIT_SECONDS = 300
"""For each of the queries, which all run at once."""


@pytest.fixture(scope="module")
def crashing(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(CrashingDataSource)
    return spark


@pytest.fixture
def urls(request: pytest.FixtureRequest) -> list[str]:
    """All stores at once: it is Spark that takes its time."""
    return [str(Backing(kind, request.getfixturevalue).url) for kind in STORES]


def start(spark: SparkSession, url: str, name: str, folder: Path, tasks: int, crash: str) -> StreamingQuery:
    source = spark.readStream.format("onebus").options(
        url=url, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=str(MESSAGES // 2)
    )
    rows = source.load().selectExpr(
        "cast(value as string) value", "cast(cast(cast(value as string) as int) % 50 as string) key"
    )
    checkpoint = folder / url.partition(":")[0]
    options = {
        "url": url,
        "topic": f"{name}-out",
        "partitions": str(OUT_PARTITIONS),
        "checkpointLocation": str(checkpoint),
        "sinkId": name,
        "crash": crash,
        "marker": f"{checkpoint}.crashed",
    }
    out = rows.repartition(tasks, "key").writeStream.format("crashing").options(**options)
    return out.trigger(availableNow=True).start()


def written(url: str, name: str) -> tuple[list[int], list[str]]:
    """The numbers that were written, sorted, and what is still staged."""

    async def work(bus: Bus) -> tuple[list[int], list[str]]:
        topic = bus.topic(f"{name}-out")
        found = [message for partition in range(OUT_PARTITIONS) for message in await topic.read(partition, 0, 100_000)]
        return sorted(int(message.data) for message in found), await bus.link.store.list_staging(f"topic:{name}-out")

    return on_bus(url, work)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("crash", POINTS)
def test_each_message_comes_once(
    crashing: SparkSession, urls: list[str], name: str, tmp_path: Path, crash: str
) -> None:
    for url in urls:
        create_topic(url, name, partitions=2)
        append(url, name, numbers(0, MESSAGES // 2), partition=0)
        append(url, name, numbers(MESSAGES // 2, MESSAGES), partition=1)

    for query in [start(crashing, url, name, tmp_path, 3, crash) for url in urls]:
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(WAIT_SECONDS)
    assert len(list(tmp_path.glob("*.crashed"))) == len(urls)
    for query in [start(crashing, url, name, tmp_path, 2, crash) for url in urls]:
        assert query.awaitTermination(WAIT_SECONDS)

    for url in urls:
        found, staged = written(url, name)
        assert found == list(range(MESSAGES)), url
        if crash not in ("task fails", "task dies"):
            assert staged == []
