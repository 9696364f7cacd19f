"""What Spark writes is there for everybody who uses the bus."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onebus import Bus
from onebus.message import Message
from onebus.objects.feeds.message import FeedMessage
from tests.spark.bus import append as append_to_topic
from tests.spark.bus import create_topic, numbers, on_bus


def write(frame: DataFrame, url: str, mode: str = "append", **options: object) -> None:
    given = {name: str(option) for name, option in options.items()}
    frame.write.format("onebus").options(url=url, **given).mode(mode).save()


@contextmanager
def streaming(frame: DataFrame, url: str, checkpoint: Path, **options: object) -> Iterator[StreamingQuery]:
    given = {name: str(option) for name, option in options.items()}
    writer = frame.writeStream.format("onebus").options(url=url, checkpointLocation=str(checkpoint), **given)
    query = writer.trigger(availableNow=True).start()
    try:
        yield query
    finally:
        query.stop()


def topic_of(url: str, name: str) -> dict[int, list[Message]]:
    """All messages of a topic, by partition."""

    async def work(bus: Bus) -> dict[int, list[Message]]:
        topic = bus.topic(name)
        found: dict[int, list[Message]] = {number: [] for number in range((await topic.describe()).partitions)}
        for number, messages in found.items():
            while more := await topic.read(number, len(messages), 100_000):
                messages.extend(more)
        return found

    return on_bus(url, work)


def staged_in(url: str) -> list[str]:
    return on_bus(url, lambda bus: bus.link.store.list_logs("spark:"))


def test_a_data_frame_becomes_messages_of_a_topic(spark: SparkSession, url: str, name: str) -> None:
    frame = spark.createDataFrame(
        [("a", "1", {"x": "y"}), (None, "2", None), ("b", "3", {})],
        "key string, value string, headers map<string, string>",
    )

    write(frame.coalesce(1), url, topic=name, partitions=3)

    messages = topic_of(url, name)
    found = {message.data: message for its in messages.values() for message in its}
    assert {data: (message.key, dict(message.headers)) for data, message in found.items()} == {
        "1": (b"a", {"x": "y"}),
        "2": (None, {}),
        "3": (b"b", {}),
    }
    assert len(messages) == 3
    assert [log for log in staged_in(url) if name in log] == []


def test_a_key_is_where_it_is_when_python_publishes_it(spark: SparkSession, url: str, name: str) -> None:
    keys = [f"key-{number}" for number in range(50)]

    async def publish(bus: Bus) -> dict[str, int]:
        topic = bus.topic(name, partitions=7)
        return {key: (await topic.publish("python", key=key)).partition for key in keys}

    places = on_bus(url, publish)
    write(spark.createDataFrame([(key, "spark") for key in keys], "key string, value string"), url, topic=name)

    for partition, messages in topic_of(url, name).items():
        expected = sorted(key.encode() for key in keys if places[key] == partition)
        assert sorted(message.key or b"" for message in messages if message.data == "spark") == expected


def test_rows_of_one_task_and_key_keep_their_order(spark: SparkSession, file_url: str, name: str) -> None:
    frame = spark.range(0, 50_000, numPartitions=2).selectExpr(
        "cast(id % 7 as string) key", "cast(id as string) value", "id % 2 = 0 even"
    )

    write(frame.filter("even").select("key", "value"), file_url, topic=name, partitions=3)

    messages = [message for its in topic_of(file_url, name).values() for message in its]
    assert len(messages) == 25_000
    for key in range(7):
        for task in (range(25_000), range(25_000, 50_000)):
            ids = [int(message.data) for message in messages if message.key == b"%d" % key]
            assert (its := [id_ for id_ in ids if id_ in task]) == sorted(its)


def test_keys_and_headers_may_begin_late(spark: SparkSession, file_url: str, name: str) -> None:
    frame = spark.range(0, 30_000, numPartitions=1).selectExpr(
        "if(id < 15000, null, cast(id as string)) key",
        "cast(id as string) value",
        "if(id < 25000, null, map('n', cast(id as string))) headers",
        "timestamp_millis(if(id < 20000, null, id)) timestamp",
    )

    write(frame, file_url, topic=name, partitions=1)

    (messages,) = topic_of(file_url, name).values()
    assert [int(message.data) for message in messages] == list(range(30_000))
    for number, message in enumerate(messages):
        assert message.key == (None if number < 15_000 else str(number).encode())
        assert dict(message.headers) == ({} if number < 25_000 else {"n": str(number)})
        assert (message.time_ms == number) == (number >= 20_000)


def test_large_messages_fill_many_batches(spark: SparkSession, file_url: str, name: str) -> None:
    frame = spark.range(0, 60, numPartitions=1).selectExpr("concat(cast(id as string), repeat('x', 300000)) value")

    write(frame, file_url, topic=name, partitions=1)

    (messages,) = topic_of(file_url, name).values()
    assert [int(message.data.rstrip("x")) for message in messages] == list(range(60))


def test_a_column_says_to_which_topic(spark: SparkSession, file_url: str, name: str) -> None:
    frame = spark.createDataFrame(
        [("a", "1", 0), ("b", "2", 1), ("a", "3", 1)], "topic string, value string, partition int"
    )

    write(frame.selectExpr(f"concat('{name}-', topic) topic", "value", "partition").coalesce(1), file_url, partitions=2)

    def texts(topic: str) -> dict[int, list[Any]]:
        return {number: [message.data for message in its] for number, its in topic_of(file_url, topic).items()}

    assert texts(f"{name}-a") == {0: ["1"], 1: ["3"]}
    assert texts(f"{name}-b") == {0: [], 1: ["2"]}


def test_values_are_what_they_are_said_to_be(spark: SparkSession, file_url: str, name: str) -> None:
    frame = spark.createDataFrame([('{"a": 1}',)], "value string")

    write(frame, file_url, topic=name)
    write(frame, file_url, topic=name, value="json")
    write(frame, file_url, topic=name, value="bytes")
    write(frame.selectExpr("cast(value as binary) value"), file_url, topic=name)
    write(frame.selectExpr("cast(value as binary) value"), file_url, topic=name, value="text")

    found = Counter(repr(message.data) for its in topic_of(file_url, name).values() for message in its)
    assert found == {"'{\"a\": 1}'": 2, "{'a': 1}": 1, "b'{\"a\": 1}'": 2}


def test_a_consumer_is_woken_by_what_spark_writes(spark: SparkSession, url: str, name: str) -> None:
    create_topic(url, name, partitions=2)
    frame = spark.createDataFrame([(str(number),) for number in range(10)], "value string")

    async def receive(bus: Bus) -> list[str]:
        received: list[str] = []
        async for batch in bus.topic(name).consume(group="readers"):
            received += [message.data for message in batch]
            if len(received) >= 10:
                break
        return received

    # Spark knows its session in this thread only.
    with ThreadPoolExecutor(1) as elsewhere:
        receiving = elsewhere.submit(on_bus, url, receive)
        write(frame, url, topic=name)
        received = receiving.result(30)

    assert sorted(received, key=int) == [str(number) for number in range(10)]


def test_a_feed_gets_what_is_published_on_it(spark: SparkSession, url: str, name: str) -> None:
    channel = f"/{name}"
    frame = spark.range(0, 3, numPartitions=1).selectExpr("to_json(struct(id)) value")

    async def publish(bus: Bus) -> int:
        return await bus.publish(channel, "first")

    async def listen(bus: Bus) -> list[FeedMessage]:
        subscription = bus.subscribe(channel, last_id=0)
        return [await anext(subscription) for _ in range(4)]

    on_bus(url, publish)
    with ThreadPoolExecutor(1) as elsewhere:
        listening = elsewhere.submit(on_bus, url, listen)
        write(frame, url, kind="feed", topic=channel)
        heard = listening.result(30)

    backlog = on_bus(url, lambda bus: bus.backlog(channel))
    assert [(message.message_id, message.data) for message in heard] == [
        (1, "first"),
        (2, {"id": 0}),
        (3, {"id": 1}),
        (4, {"id": 2}),
    ]
    assert [(one.global_id, one.data) for one in backlog] == [(one.global_id, one.data) for one in heard]


def test_a_feed_remembers_no_more_than_usual(spark: SparkSession, file_url: str, name: str) -> None:
    frame = spark.range(0, 5000, numPartitions=1).selectExpr("cast(id as string) value")

    write(frame, file_url, kind="feed", topic=f"/{name}", site="s")

    backlog = on_bus(file_url, lambda bus: bus.backlog(f"/{name}", site_id="s"))
    assert [message.data for message in backlog] == list(range(4000, 5000))


def test_a_queue_gets_what_is_pushed_to_it(spark: SparkSession, url: str, name: str) -> None:
    frame = spark.createDataFrame([("k", "1"), (None, "2"), (None, "3")], "key string, value string").coalesce(1)

    async def push(bus: Bus) -> int:
        async with bus.queue(name) as queue:
            return await queue.push("0")

    async def consume(bus: Bus) -> list[tuple[bytes | None, str]]:
        async with bus.queue(name) as queue:
            return [(message.key, message.data) async for message in queue.consume(max=4)]

    on_bus(url, push)
    write(frame, url, kind="queue", topic=name)

    assert on_bus(url, consume) == [(None, "0"), (b"k", "1"), (None, "2"), (None, "3")]


def test_a_queue_that_spark_creates_waits_for_its_consumers(spark: SparkSession, file_url: str, name: str) -> None:
    frame = spark.createDataFrame([("1",)], "value string")

    write(frame, file_url, kind="queue", topic=name)
    write(frame, file_url, kind="queue", topic=f"{name}-2", ttl=60)

    async def ttl(bus: Bus, queue: str) -> float | None:
        stat = await bus.link.store.stat(f"queue:{queue}")
        return None if stat is None else stat.ttl_seconds

    assert on_bus(file_url, lambda bus: ttl(bus, name)) == 0
    assert on_bus(file_url, lambda bus: ttl(bus, f"{name}-2")) == 60


def test_a_write_with_an_id_happens_once(spark: SparkSession, url: str, name: str) -> None:
    frame = spark.range(0, 100).selectExpr("cast(id as string) value")

    for _ in range(2):
        for batch_id in (1, 2):
            write(frame, url, topic=name, partitions=2, sinkId=name, batchId=batch_id)
    write(frame, url, topic=name, sinkId=f"{name}-2")

    found = Counter(message.data for its in topic_of(url, name).values() for message in its)
    assert found == {str(number): 3 for number in range(100)}


def test_a_stream_goes_from_topic_to_topic(spark: SparkSession, url: str, name: str, tmp_path: Path) -> None:
    create_topic(url, name, partitions=2)
    append_to_topic(url, name, numbers(0, 1000), partition=0)
    append_to_topic(url, name, numbers(1000, 2000), partition=1)
    source = spark.readStream.format("onebus").options(
        url=url, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="700"
    )
    out = source.load().selectExpr("cast(value as string) key", "value")

    for _ in range(2):
        with streaming(out, url, tmp_path / "checkpoint", topic=f"{name}-out", partitions=3) as query:
            assert query.awaitTermination(90)

    found = Counter(int(message.data) for its in topic_of(url, f"{name}-out").values() for message in its)
    assert found == dict.fromkeys(range(2000), 1)


def test_a_stream_with_an_id_survives_its_checkpoint(
    spark: SparkSession, file_url: str, name: str, tmp_path: Path
) -> None:
    create_topic(file_url, name, partitions=1)
    append_to_topic(file_url, name, numbers(0, 10))
    source = spark.readStream.format("onebus").options(url=file_url, subscribe=name, startingOffsets="earliest")

    for attempt in range(2):
        with streaming(
            source.load().select("value"), file_url, tmp_path / f"{attempt}", topic=f"{name}-out", sinkId=name
        ) as query:
            assert query.awaitTermination(60)

    found = Counter(message.data for its in topic_of(file_url, f"{name}-out").values() for message in its)
    assert found == {str(number).encode(): 1 for number in range(10)}


def test_for_each_batch_may_write_to_several_topics_once(
    spark: SparkSession, file_url: str, name: str, tmp_path: Path
) -> None:
    create_topic(file_url, name, partitions=1)
    append_to_topic(file_url, name, numbers(0, 10))
    source = spark.readStream.format("onebus").options(url=file_url, subscribe=name, startingOffsets="earliest")

    def twice(frame: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            for out in ("a", "b"):
                write(frame.select("value"), file_url, topic=f"{name}-{out}", sinkId=f"{name}-{out}", batchId=batch_id)

    query = source.load().writeStream.foreachBatch(twice).trigger(availableNow=True)
    assert query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(60)

    for out in ("a", "b"):
        found = Counter(message.data for its in topic_of(file_url, f"{name}-{out}").values() for message in its)
        assert found == {str(number).encode(): 1 for number in range(10)}


def test_a_bad_row_fails_the_write_and_leaves_nothing(spark: SparkSession, file_url: str, name: str) -> None:
    # In one task: another one would be ended by Spark in the middle, and what that leaves ends by itself much later.
    frame = spark.range(0, 40_000, numPartitions=1).selectExpr("if(id = 39999, null, cast(id as string)) value")

    with pytest.raises(PythonException, match="value holds null"):
        write(frame, file_url, topic=name, partitions=2)

    assert sum(len(its) for its in topic_of(file_url, name).values()) == 0
    assert staged_in(file_url) == []


def test_bad_json_does_not_reach_a_feed(spark: SparkSession, file_url: str, name: str) -> None:
    with pytest.raises(PythonException, match="not JSON"):
        write(spark.createDataFrame([("no json",)], "value string"), file_url, kind="feed", topic=f"/{name}")

    assert on_bus(file_url, lambda bus: bus.last_id(f"/{name}")) == 0


def test_what_is_read_can_be_written_as_it_is(spark: SparkSession, file_url: str, name: str) -> None:
    rows = [(str(number), json.dumps({"n": number}), {"h": str(number)}) for number in range(20)]
    write(
        spark.createDataFrame(rows, "key string, value string, headers map<string, string>"),
        file_url,
        topic=name,
        partitions=3,
    )

    read = spark.read.format("onebus").options(url=file_url, subscribe=name, includeHeaders="true").load()
    write(read.drop("offset"), file_url, topic=f"{name}-copy", partitions=3)

    def content(topic: str) -> list[list[tuple[object, ...]]]:
        return [
            sorted((one.key or b"", one.raw, sorted(one.headers.items()), one.time_ms) for one in its)
            for its in topic_of(file_url, topic).values()
        ]

    assert content(f"{name}-copy") == content(name)
