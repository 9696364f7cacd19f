"""What can be written, and what cannot; Spark asks for a writer before it runs anything."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from onebus.errors import InvalidArgument, InvalidColumn, InvalidOption
from onebus.spark.sink.options import WriteOptions
from onebus.spark.source import BusDataSource


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("'1' value", {}, "the option topic, or with a column topic"),
        ("'1' text", {"topic": "t"}, "no column value"),
        ("struct(1 a) value", {"topic": "t"}, "to_json"),
        ("array(1) value", {"topic": "t"}, "to_json"),
        ("1 value", {"topic": "t"}, "column value is int"),
        ("'1' value, 2 key", {"topic": "t"}, "column key is int"),
        ("'1' value, 2 topic", {}, "column topic is int"),
        ("'1' value, '1' partition", {"topic": "t"}, "column partition is string"),
        ("'1' value, map('a', 1) headers", {"topic": "t"}, "column headers is map"),
        ("'1' value, 1 timestamp", {"topic": "t"}, "column timestamp is int"),
        ("'1' value, 1 colour", {"topic": "t"}, "column colour is not known"),
        ("'1' value, '1' key", {"topic": "t", "kind": "feed"}, "column key means nothing to a feed"),
        ("'1' value, 1 partition", {"topic": "t", "kind": "queue"}, "column partition means nothing to a queue"),
        ("'1' value", {"topic": "t", "kind": "dead"}, "option kind is one of"),
        ("'1' value", {"topic": "t", "partitions": "many"}, "option partitions is a whole number"),
        ("'1' value", {"topic": "t", "partitions": "0"}, "option partitions is at least 1"),
        ("'1' value", {"topic": "t", "partitions": "10001"}, "option partitions is at most"),
        ("'1' value", {"topic": "t", "kind": "queue", "partitions": "3"}, "option partitions is for kind topic"),
        ("'1' value", {"topic": "t", "ttl": "3"}, "option ttl is for kind queue"),
        ("'1' value", {"topic": "t", "kind": "queue", "ttl": "long"}, "option ttl is a whole number"),
        ("'1' value", {"topic": "t", "kind": "queue", "ttl": "0"}, "option ttl is at least 1"),
        ("'1' value", {"topic": " "}, "option topic is empty"),
        ("'1' value", {"topic": "a|b"}, "option topic cannot be used: .*'a|b'"),
        ("'1' value", {"topic": "a|b", "kind": "queue"}, "option topic cannot be used"),
        ("'1' value", {"topic": "t", "url": "ftp://bus"}, "option url, .* No store answers to ftp://"),
        ("'1' value", {"topic": "t", "site": "s"}, "option site is for feeds"),
        ("'1' value", {"topic": "t", "value": "xml"}, "option value is one of"),
        ("'1' value", {"topic": "t", "kind": "feed", "value": "text"}, "feeds carry JSON"),
        ("'1' value", {"topic": "t", "sinkId": "a|b"}, "option sinkId"),
        ("'1' value", {"topic": "t", "sinkId": "x" * 101}, "option sinkId"),
        ("'1' value", {"topic": "t", "batchId": "1"}, "option batchId goes with sinkId"),
        ("'1' value", {"topic": "t", "sinkId": "s", "batchId": "-1"}, "option batchId is at least 0"),
        ("'1' value", {"topic": "t", "partition": "3"}, "option partition is not known. Did you mean partitions"),
        ("'1' value", {"topic": "t", "subscribe": "x"}, "option subscribe is not known"),
    ],
)
def test_what_cannot_be_written_is_an_error_that_names_it(
    spark: SparkSession, columns: str, options: dict[str, str], text: str
) -> None:
    schema = spark.sql(f"select {columns}").schema

    with pytest.raises((InvalidColumn, InvalidOption), match=text):
        BusDataSource({"url": "sqlite:///bus.db", **options}).writer(schema, overwrite=False)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("'1' value", {"topic": "t", "partitions": "3", "value": "json", "sinkId": "s", "batchId": "0"}),
        ("cast('1' as binary) value, '1' key, 1L partition", {"topic": "t", "kind": "topic"}),
        ("'1' value, now() timestamp, 't' topic", {}),
        ("'1' value, map('a', 'b') headers", {"topic": "t", "kind": "queue", "ttl": "60"}),
        ("'1' value, array(struct('a' key, cast('b' as binary) value)) headers", {"topic": "t"}),
        ("'1' value", {"topic": "/t", "kind": "feed", "site": "s", "value": "json"}),
    ],
)
def test_what_can_be_written_has_a_writer(spark: SparkSession, columns: str, options: dict[str, str]) -> None:
    schema = spark.sql(f"select {columns}").schema

    BusDataSource({"url": "sqlite:///bus.db", **options}).writer(schema, overwrite=False)


def test_a_stream_counts_its_batches_by_itself() -> None:
    with pytest.raises(InvalidOption, match="batchId"):
        WriteOptions.parse({"url": "sqlite:///b", "topic": "t", "sinkId": "s", "batchId": "1"}, streaming=True)


def test_what_is_meant_for_spark_is_left_to_it() -> None:
    options = {"url": "sqlite:///b", "topic": "t", "checkpointLocation": "/c"}

    assert WriteOptions.parse(options, streaming=True).topic == "t"


def test_nothing_is_overwritten(spark: SparkSession) -> None:
    schema = spark.sql("select '1' value").schema
    source = BusDataSource({"url": "sqlite:///bus.db", "topic": "t"})

    with pytest.raises(InvalidArgument, match=r'mode\("append"\)'):
        source.writer(schema, overwrite=True)
    with pytest.raises(InvalidArgument, match=r'outputMode\("append"\)'):
        source.streamWriter(schema, overwrite=True)


def test_spark_says_what_is_wrong(spark: SparkSession, file_url: str) -> None:
    frame = spark.sql("select struct(1 a) value")

    with pytest.raises(AnalysisException, match="to_json"):
        frame.write.format("onebus").options(url=file_url, topic="t").mode("append").save()
    with pytest.raises(AnalysisException, match=r'mode\("append"\)'):
        frame.write.format("onebus").options(url=file_url, topic="t").mode("overwrite").save()
