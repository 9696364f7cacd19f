"""Topics and feeds as streams."""

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onebus.log.retention import Retention
from tests.services.patience import comes_true
from tests.spark.bus import append, create_topic, numbers, on_bus

WAIT_SECONDS = 90
"""For a stream to start, or to have something; on a machine that has other things to do."""


class Stream:
    """A query that goes on where it was each time it is run, and what each of its micro-batches brought."""

    def __init__(self, spark: SparkSession, url: str, checkpoint: Path, **options: object) -> None:
        given = {name: str(option) for name, option in {"startingOffsets": "earliest", **options}.items()}
        self._source = spark.readStream.format("onebus").options(url=url, **given)
        self._checkpoint = str(checkpoint)
        self.batches: list[list[str]] = []

    def begin(self, *, to_the_end: bool = False) -> StreamingQuery:
        writer = self._source.load().writeStream.option("checkpointLocation", self._checkpoint)
        return (writer.trigger(availableNow=True) if to_the_end else writer).foreachBatch(self._take).start()

    def run(self) -> list[list[str]]:
        """Read all that is there now, and return what is new, micro-batch by micro-batch."""
        self.batches = []
        query = self.begin(to_the_end=True)
        query.awaitTermination(60)
        assert not query.isActive
        return [sorted(batch, key=int) for batch in self.batches if batch]

    def _take(self, frame: DataFrame, _: int) -> None:
        self.batches.append([row.v for row in frame.selectExpr("cast(value as string) v").collect()])

    @property
    def texts(self) -> list[str]:
        return [text for batch in list(self.batches) for text in batch]


def words(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, url: str, name: str, checkpoint: Path) -> None:
    create_topic(url, name, partitions=1)
    append(url, name, numbers(1, 8))
    stream = Stream(spark, url, checkpoint, subscribe=name)

    assert stream.run() == [words(1, 8)]
    assert stream.run() == []
    append(url, name, numbers(8, 11))
    assert stream.run() == [words(8, 11)]


def test_a_trigger_reads_no_more_than_it_may(spark: SparkSession, file_url: str, name: str, checkpoint: Path) -> None:
    create_topic(file_url, name, partitions=2)
    append(file_url, name, numbers(0, 60))
    append(file_url, name, numbers(60, 100), partition=1)

    batches = Stream(spark, file_url, checkpoint, subscribe=name, maxOffsetsPerTrigger=50, minPartitions=3).run()

    assert [len(batch) for batch in batches] == [50, 50]
    assert sorted((text for batch in batches for text in batch), key=int) == words(0, 100)


@pytest.mark.timeout(400)
def test_what_is_published_while_a_stream_runs_arrives(
    spark: SparkSession, file_url: str, name: str, checkpoint: Path
) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(0, 5))
    stream = Stream(spark, file_url, checkpoint, subscribe=name, startingOffsets="latest")
    query = stream.begin()
    try:
        assert comes_true(lambda: query.lastProgress is not None, WAIT_SECONDS)
        append(file_url, name, numbers(5, 8))
        assert comes_true(lambda: stream.texts == words(5, 8), WAIT_SECONDS)
        # A partition that is added later is found, and read from its beginning.
        on_bus(file_url, lambda bus: bus.topic(name).add_partitions(1))
        append(file_url, name, numbers(8, 10), partition=1)
        assert comes_true(lambda: stream.texts == words(5, 10), WAIT_SECONDS)
        assert comes_true(lambda: _progress(query, "endOffset") == {name: {"0": 9, "1": 3}}, WAIT_SECONDS)
        assert _progress(query, "latestOffset") == {name: {"0": 9, "1": 3}}
    finally:
        query.stop()


def _progress(query: StreamingQuery, which: str) -> object:
    progress = query.lastProgress
    assert progress is not None
    return json.loads(progress["sources"][0][which])["offsets"]


def test_retention_that_overtakes_a_stream_ends_it(
    spark: SparkSession, file_url: str, name: str, checkpoint: Path
) -> None:
    create_topic(file_url, name, partitions=1, retention=Retention(max_count=5))
    append(file_url, name, numbers(1, 4))
    assert Stream(spark, file_url, checkpoint, subscribe=name).run() == [words(1, 4)]

    append(file_url, name, numbers(4, 21))

    with pytest.raises(StreamingQueryException, match=f"MessagesLost.* 4 to 15 of {name}:0"):
        Stream(spark, file_url, checkpoint, subscribe=name).run()
    lenient = Stream(spark, file_url, checkpoint, subscribe=name, failOnDataLoss="false")
    assert lenient.run() == [words(16, 21)]
