"""Windows of messages, in the lake and in a feed."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onebus import Bus
from onebus.errors import InvalidArgument
from onebus.log.batch import Entry, encode
from onebus.objects.topics.names import log_of
from onebus.spark.jobs import roll_up, rollup, table
from onebus.spark.jobs.tables import table_path
from tests.services.patience import comes_true
from tests.spark.bus import create_topic, on_bus, read

MINUTE_MS = 60_000
NOON_MS = 1_772_366_400_000
"""2026-03-01T12:00:00Z"""


def publish(url: str, topic: str, minute: int, keys: str, *, partition: int = 0) -> None:
    """Publish messages of three bytes in some minute after noon, one for each key."""

    async def work(bus: Bus) -> None:
        entries = [Entry(b"123", key=key.encode()) for key in keys]
        blob = encode(entries, now_ms=NOON_MS + minute * MINUTE_MS)
        await bus.link.store.append(log_of(topic, partition), blob)

    on_bus(url, work)


def run(spark: SparkSession, url: str, folder: Path, *topics: str, **options: Any) -> None:
    query = rollup(spark, f"{folder}/lake", topics=topics, url=url, once=True, **options)
    assert query.awaitTermination(150)


def in_lake(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    rows = table(spark, f"{folder}/lake", "rollup").sort("start", "name").collect()
    return [
        (f"{row['start']:%H:%M}", *(row[name] for name in ("kind", "name", "messages", "bytes", "keys")))
        for row in rows
    ]


def in_feed(url: str, channel: str = "/rollup") -> list[dict[str, Any]]:
    return [message.data for message in on_bus(url, lambda bus: bus.backlog(channel))]


def test_a_window_is_counted_over_all_partitions_and_written_once(
    spark: SparkSession, url: str, name: str, tmp_path: Path
) -> None:
    create_topic(url, name, partitions=2)
    publish(url, name, 0, "aab")
    publish(url, name, 0, "ac", partition=1)
    publish(url, name, 1, "d")
    publish(url, name, 5, "e")

    channel = f"/{name}"
    run(spark, url, tmp_path, name, publish_to=channel)

    expected = [("12:00", "topic", name, 5, 15, 3), ("12:01", "topic", name, 1, 3, 1)]
    assert in_lake(spark, tmp_path) == expected
    fed = in_feed(url, channel)
    assert [
        (row["start"][11:16], row["kind"], row["name"], row["messages"], row["bytes"], row["keys"]) for row in fed
    ] == expected
    assert fed[0]["end"] == "2026-03-01T12:01:00.000Z"


def test_the_next_run_goes_on_with_windows_that_were_open(
    spark: SparkSession, file_url: str, name: str, tmp_path: Path
) -> None:
    create_topic(file_url, name)
    publish(file_url, name, 0, "a")
    publish(file_url, name, 3, "bb")
    run(spark, file_url, tmp_path, name)
    assert [row[0] for row in in_lake(spark, tmp_path)] == ["12:00"]

    publish(file_url, name, 3, "c")
    publish(file_url, name, 9, "d")
    run(spark, file_url, tmp_path, name)

    assert in_lake(spark, tmp_path) == [("12:00", "topic", name, 1, 3, 1), ("12:03", "topic", name, 3, 9, 2)]
    assert [row["messages"] for row in in_feed(file_url)] == [1, 3]


def test_a_micro_batch_that_is_run_again_leaves_each_window_once(
    spark: SparkSession, file_url: str, name: str, tmp_path: Path
) -> None:
    create_topic(file_url, name)
    publish(file_url, name, 0, "a")
    publish(file_url, name, 3, "b")
    run(spark, file_url, tmp_path, name)
    (commits,) = tmp_path.glob("lake/_checkpoints/rollup-*/commits")
    newest = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())

    # As if Spark had died after it wrote, and before it knew.
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    run(spark, file_url, tmp_path, name)

    assert in_lake(spark, tmp_path) == [("12:00", "topic", name, 1, 3, 1)]
    assert len(in_feed(file_url)) == 1


def test_roll_ups_of_different_sources_do_not_share_their_state(
    spark: SparkSession, file_url: str, name: str, tmp_path: Path
) -> None:
    for topic in (name, f"{name},2"):
        create_topic(file_url, topic)
        publish(file_url, topic, 0, "a")
        publish(file_url, topic, 3, "b")
        run(spark, file_url, tmp_path, topic)

    assert sorted(in_lake(spark, tmp_path)) == [("12:00", "topic", topic, 1, 3, 1) for topic in (name, f"{name},2")]


def test_the_table_is_where_the_lake_is_whatever_file_system_is_usual(spark: SparkSession, tmp_path: Path) -> None:
    assert table_path(spark, str(tmp_path), "rollup") == f"file:{tmp_path}/_tables/rollup"
    assert table_path(spark, f"file:{tmp_path}/", "rollup") == f"file:{tmp_path}/_tables/rollup"


def test_channels_are_rolled_up_beside_topics(spark: SparkSession, file_url: str, name: str, tmp_path: Path) -> None:
    create_topic(file_url, name)
    publish(file_url, name, 0, "a")
    on_bus(file_url, lambda bus: bus.publish("/news", "rain"))

    run(spark, file_url, tmp_path, name, feeds=["/news"])
    query = rollup(spark, f"{tmp_path}/live", feeds=["/news"], url=file_url, window="1 second", watermark="0 seconds")
    try:
        # Continuous: the window of the first message closes when a later one comes.
        assert comes_true(lambda: bool(query.recentProgress), 60)
        on_bus(file_url, lambda bus: bus.publish("/news", "sun"))
        assert comes_true(lambda: len(in_feed(file_url)) == 2, 60)
    finally:
        query.stop()

    topic, channel = in_feed(file_url)
    assert (topic["kind"], topic["name"], topic["messages"]) == ("topic", name, 1)
    assert (channel["kind"], channel["name"], channel["messages"]) == ("feed", "/news", 1)


def test_latency_is_from_publication_to_processing(spark: SparkSession, file_url: str, name: str) -> None:
    create_topic(file_url, name)
    on_bus(file_url, lambda bus: bus.topic(name).publish_many(["x"] * 20))
    messages = read(spark, file_url, subscribe=name).selectExpr("*", "'topic' kind")
    ages = "(double(current_timestamp()) - double(timestamp)) * 1000"

    (row,) = roll_up(messages, window="1 day").collect()
    oldest_ms = messages.selectExpr(f"max({ages}) age").collect()[0].age

    assert 0 < row.p50_ms <= row.p95_ms <= row.p99_ms <= oldest_ms
    publish(file_url, name, 1_000_000, "a")
    ahead = read(spark, file_url, subscribe=name).selectExpr("*", "'topic' kind")
    assert roll_up(ahead, window="1 day").agg({"p50_ms": "min"}).collect()[0][0] == 0


def test_what_cannot_be_rolled_up_is_refused(spark: SparkSession, file_url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="topics or feeds"):
        rollup(spark, str(tmp_path), url=file_url)
    with pytest.raises(InvalidArgument, match="roll up itself"):
        rollup(spark, str(tmp_path), url=file_url, feeds=["/*"])
