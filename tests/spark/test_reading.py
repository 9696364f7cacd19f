"""What is in the bus, as data frames."""

import asyncio
import json
from collections import Counter

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import col, unix_millis

from onebus import Bus
from onebus.log.batch import Entry, Kind, encode
from onebus.log.retention import Retention
from onebus.objects.topics.names import log_of
from tests.spark.bus import append, create_topic, numbers, on_bus, read, texts


def test_a_topic_has_a_row_for_each_message(spark: SparkSession, url: str, name: str) -> None:
    create_topic(url, name)
    append(url, name, [Entry(b"a", Kind.TEXT, b"k", {"h": "1", "i": "2"}, 1_000_500)], numbers(2, 4), partition=1)

    frame = read(spark, url, subscribe=name, includeHeaders="true")
    rows = frame.withColumn("timestamp", unix_millis("timestamp")).sort("offset").collect()

    assert rows[0] == Row(
        key=b"k",
        value=b"a",
        topic=name,
        partition=1,
        offset=1,
        timestamp=1_000_500,
        headers=[Row(key="h", value=b"1"), Row(key="i", value=b"2")],
    )
    assert [(row.key, row.value, row.offset, row.headers) for row in rows[1:]] == [
        (None, b"2", 2, None),
        (None, b"3", 3, None),
    ]


def test_what_was_published_is_read_once_whatever_batches_it_came_in(spark: SparkSession, url: str, name: str) -> None:
    async def publish(bus: Bus) -> None:
        topic = bus.topic(name, partitions=3)
        for _ in range(5):
            await asyncio.gather(*(topic.publish({"n": n}, key=f"k{n % 11}") for n in range(200)))

    on_bus(url, publish)

    rows = read(spark, url, subscribe=name, minPartitions=7).collect()

    places = Counter((row.partition, row.offset) for row in rows)
    assert len(places) == len(rows) == 1000
    assert {row.partition for row in rows} == {0, 1, 2}
    assert Counter(json.loads(row.value)["n"] for row in rows) == dict.fromkeys(range(200), 5)


def test_values_are_bytes_text_or_structs(spark: SparkSession, file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=1)
    values = [b'{"n": 1, "tags": ["a"], "more": 1}', b'{"n": "x", "tags": []}', b"{", b"\xff", b"7"]
    append(file_url, name, [Entry(value) for value in values])

    def found(**options: str) -> list[object]:
        rows = read(spark, file_url, subscribe=name, **options).sort("offset").collect()
        return [row.value for row in rows]

    assert found() == values
    assert found(value="text") == [*(value.decode() for value in values[:3]), None, "7"]
    parsed = found(value="json", schema="n int, tags array<string>, gone struct<deep: double>")
    assert parsed == [
        Row(n=1, tags=["a"], gone=None),
        Row(n=None, tags=[], gone=None),
        None,
        None,
        None,
    ]


def test_only_the_columns_that_are_named_are_there(spark: SparkSession, file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(1, 3))

    by_option = read(spark, file_url, subscribe=name, columns="offset,value")
    by_schema = spark.read.format("onebus").schema("offset long, value string").options(url=file_url, subscribe=name)

    assert by_option.sort("offset").collect() == [Row(offset=1, value=b"1"), Row(offset=2, value=b"2")]
    assert by_schema.load().sort("offset").collect() == [Row(offset=1, value="1"), Row(offset=2, value="2")]


def test_a_column_that_does_not_exist_is_named(spark: SparkSession, file_url: str, name: str) -> None:
    create_topic(file_url, name)
    frame = spark.read.format("onebus").schema("colour string").options(url=file_url, subscribe=name).load()

    with pytest.raises(AnalysisException, match=r"InvalidOption.*'colour'"):
        frame.collect()


# The same data frame, used more than once


def test_a_data_frame_may_be_used_again_and_with_itself(spark: SparkSession, file_url: str, name: str) -> None:
    create_topic(file_url, name)
    append(file_url, name, numbers(0, 50), numbers(50, 100))
    append(file_url, name, numbers(0, 100), partition=1)
    frame = read(spark, file_url, subscribe=name)

    low, high = frame.where("offset < 10"), frame.where("offset > 95")
    joined = frame.where("partition = 0").alias("a").join(frame.where("partition = 1").alias("b"), "offset")

    assert (frame.count(), low.count(), frame.count(), high.count(), frame.count()) == (200, 18, 200, 10, 200)
    assert Counter(row.offset for row in low.union(high).collect()) == dict.fromkeys(
        [*range(1, 10), *range(96, 101)], 2
    )
    assert joined.select("a.partition", "b.partition").distinct().collect() == [Row(partition=0, partition_=1)]
    assert joined.count() == 100
    frame.createOrReplaceTempView("messages")
    assert spark.sql("select count(*) n from messages where offset < 10").first() == Row(n=18)
    assert spark.sql("select count(*) n from messages").first() == Row(n=200)
    assert frame.where(col("topic") == "another").count() == 0


def test_a_data_frame_reads_the_same_messages_each_time(spark: SparkSession, file_url: str, name: str) -> None:
    create_topic(file_url, name)
    append(file_url, name, numbers(0, 10))
    frame = read(spark, file_url, subscribe=name)
    assert frame.count() == 10

    append(file_url, name, numbers(10, 20))

    assert frame.count() == 10
    assert read(spark, file_url, subscribe=name).count() == 20


def test_sql_knows_the_bus(spark: SparkSession, file_url: str, name: str) -> None:
    create_topic(file_url, name)
    append(file_url, name, numbers(0, 10))

    spark.sql(f"create or replace temporary view bus using onebus options (url '{file_url}', subscribe '{name}')")

    assert spark.sql("select max(offset) last from bus").first() == Row(last=10)


# What is not there


def test_messages_that_go_after_planning_are_named(spark: SparkSession, url: str, name: str) -> None:
    create_topic(url, name, partitions=1, retention=Retention(max_count=10))
    append(url, name, numbers(1, 11))
    strict, lenient = (read(spark, url, subscribe=name, failOnDataLoss=fail) for fail in ("true", "false"))
    assert (strict.count(), lenient.count()) == (10, 10)

    append(url, name, numbers(11, 15))

    with pytest.raises(PythonException, match=f"MessagesLost.* 1 to 4 of {name}:0"):
        strict.collect()
    assert texts(lenient) == [str(n) for n in range(5, 11)]


def test_a_corrupt_batch_is_named_and_not_delivered(spark: SparkSession, file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=1)

    async def damage(bus: Bus) -> None:
        blob = bytearray(encode(numbers(3, 7), now_ms=1))
        blob[-1] ^= 1
        await bus.link.store.append(log_of(name, 0), bytes(blob))

    append(file_url, name, numbers(1, 3))
    on_bus(file_url, damage)

    with pytest.raises(PythonException, match=f"CorruptBatch.*messages 3 to 6 of {name}:0"):
        read(spark, file_url, subscribe=name).collect()
