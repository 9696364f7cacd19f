"""One data frame over lake and store."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from onebus.errors import InvalidArgument, TopicMissing
from onebus.spark.jobs import archive, history
from onebus.spark.jobs.archiving import Batch
from onebus.spark.jobs.lake import Lake
from onebus.spark.jobs.running import Stop
from tests.spark.bus import append, create_topic, numbers, on_bus
from tests.spark.lakes import ids


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def seen(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def test_the_lake_ends_where_the_store_begins(spark: SparkSession, url: str, name: str, lake: Path) -> None:
    create_topic(url, name, partitions=2)
    append(url, name, numbers(0, 10))
    assert seen(history(spark, name, lake=str(lake), url=url)) == ids(p0=10)

    archive(spark, str(lake), url=url, topics=[name])
    append(url, name, numbers(10, 15))
    append(url, name, numbers(0, 3), partition=1)
    assert seen(history(spark, name, lake=str(lake), url=url)) == ids(p0=15, p1=3)

    archive(spark, str(lake), url=url, topics=[name], then_trim=True, even_unread=True)
    assert seen(history(spark, name, lake=str(lake), url=url)) == ids(p0=15, p1=3)
    on_bus(url, lambda bus: bus.topic(name).delete())
    assert seen(history(spark, name, lake=str(lake), url=url)) == ids(p0=15, p1=3)


def test_it_is_whole_at_any_moment_while_the_lake_is_written(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, *(numbers(first, first + 20) for first in range(0, 400, 20)))
    stop = Stop()
    batches: list[Batch] = []

    def work() -> None:
        # Small batches and small seals, so that the seam moves all the time.
        archive(
            spark,
            str(lake),
            url=file_url,
            topics=[name],
            once=False,
            rows_at_once=20,
            seal_rows=60,
            stop=stop,
            on_batch=batches.append,
        )

    writing = threading.Thread(target=work)
    writing.start()
    try:
        for _ in range(6):
            assert seen(history(spark, name, lake=str(lake), url=file_url)) == ids(p0=400)
    finally:
        stop.set()
        writing.join(120)
    assert len(batches) > 1
    assert Lake(spark, str(lake)).newest().number > len(batches)
    assert seen(history(spark, name, lake=str(lake), url=file_url)) == ids(p0=400)


def test_what_has_no_history_is_an_error(spark: SparkSession, file_url: str, lake: Path) -> None:
    with pytest.raises(TopicMissing):
        history(spark, "nothing", lake=str(lake), url=file_url)
    with pytest.raises(InvalidArgument):
        history(spark, "work", lake=str(lake), url=file_url, kind="queue")
