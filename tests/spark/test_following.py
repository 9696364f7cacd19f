"""What a stream reads next, asked of its reader as Spark asks it."""

import json
import logging
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from onebus import Bus
from onebus.errors import InvalidOption, MessagesLost, TopicMissing
from onebus.log.batch import Entry
from onebus.log.retention import Retention
from onebus.spark.options import ReadOptions
from onebus.spark.ranges import Range
from onebus.spark.streaming import BusStreamReader
from tests.spark.bus import append, create_topic, numbers, on_bus

COLUMNS = StructType([StructField("value", BinaryType()), StructField("offset", LongType())])


class Following:
    """A reader and how far it has come. What Spark keeps between two questions is JSON."""

    def __init__(self, url: str, **options: str) -> None:
        given = {"url": url, "startingOffsets": "earliest", **options}
        if "startingTimestamp" in given:
            del given["startingOffsets"]
        self.reader = BusStreamReader(ReadOptions.parse(given, streaming=True), COLUMNS)
        self.offsets: dict[str, Any] | None = None

    def next(self, end: dict[str, Any] | None = None) -> list[str]:
        """Return the messages of the next micro-batch, or of one that is repeated."""
        if self.offsets is None:
            self.offsets = _kept(self.reader.initialOffset())
        start, limit = self.offsets, self.reader.getDefaultReadLimit()
        self.offsets = end or _kept(self.reader.latestOffset(start, limit))
        partitions = self.reader.partitions(start, self.offsets)
        batches = [batch for partition in partitions for batch in self.reader.read(partition)]
        return [value.decode() for batch in batches for value in batch["value"].to_pylist()]


def _kept(offsets: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(json.dumps(offsets))
    return kept


def words(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def test_nothing_new_leaves_the_offsets_as_they_are(file_url: str, name: str) -> None:
    create_topic(file_url, name)
    append(file_url, name, numbers(1, 4))
    stream = Following(file_url, subscribe=name)
    assert stream.next() == words(1, 4)
    before = stream.offsets

    assert stream.next() == []
    assert stream.offsets == before


def test_offsets_are_the_next_messages_to_read(file_url: str, name: str) -> None:
    create_topic(file_url, name)
    append(file_url, name, numbers(1, 4))
    stream = Following(file_url, subscribe=name)

    stream.next()

    assert stream.offsets is not None
    assert stream.offsets["offsets"] == {name: {"0": 4, "1": 1}}
    assert stream.reader.reportLatestOffset() == stream.offsets


def test_a_micro_batch_that_is_repeated_is_the_same(file_url: str, name: str) -> None:
    create_topic(file_url, name)
    append(file_url, name, numbers(1, 4))
    first = Following(file_url, subscribe=name)
    begun = first.offsets = _kept(first.reader.initialOffset())
    first.next()
    append(file_url, name, numbers(4, 9))

    restarted = Following(file_url, subscribe=name)
    restarted.offsets = begun

    assert restarted.next(end=first.offsets) == words(1, 4)
    assert restarted.next() == words(4, 9)


def test_what_comes_after_the_beginning_of_an_available_now_trigger_is_for_the_next(file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(1, 8))
    stream = Following(file_url, subscribe=name, maxOffsetsPerTrigger="4")
    stream.reader.prepareForTriggerAvailableNow()

    append(file_url, name, numbers(8, 20))

    assert [stream.next(), stream.next(), stream.next()] == [words(1, 5), words(5, 8), []]


def test_a_partition_that_had_no_messages_is_for_the_next_available_now_trigger(file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=2)
    append(file_url, name, numbers(1, 3))
    stream = Following(file_url, subscribe=name)
    stream.reader.prepareForTriggerAvailableNow()

    append(file_url, name, numbers(3, 9), partition=1)

    assert [stream.next(), stream.next()] == [words(1, 3), []]
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.next() == words(3, 9)


def test_a_limit_is_shared_in_proportion_and_leaves_nobody_out(file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=3)
    append(file_url, name, numbers(0, 1000))
    append(file_url, name, numbers(1000, 1001), partition=1)
    stream = Following(file_url, subscribe=name, maxOffsetsPerTrigger="10")

    assert stream.next() == [*words(0, 9), "1000"]
    assert isinstance(stream.reader.getDefaultReadLimit(), ReadMaxRows)
    assert isinstance(Following(file_url, subscribe=name).reader.getDefaultReadLimit(), ReadAllAvailable)


def test_partitions_and_topics_that_come_later_are_read_from_their_beginning(file_url: str) -> None:
    create_topic(file_url, "clicks-1", partitions=1)
    append(file_url, "clicks-1", numbers(1, 3))
    stream = Following(file_url, subscribePattern="clicks-.*", startingOffsets="latest")
    assert stream.next() == []

    on_bus(file_url, lambda bus: bus.topic("clicks-1").add_partitions(1))
    append(file_url, "clicks-1", numbers(3, 6), partition=1)
    assert stream.next() == words(3, 6)
    create_topic(file_url, "clicks-2")
    append(file_url, "clicks-2", numbers(6, 8))
    assert stream.next() == words(6, 8)


def test_a_feed_is_followed_from_before_its_first_message(url: str, name: str) -> None:
    async def publish(bus: Bus, first: int, end: int) -> None:
        for number in range(first, end):
            await bus.publish(f"/{name}", number)

    stream = Following(url, kind="feed", subscribe=f"/{name}")
    assert stream.next() == []
    on_bus(url, lambda bus: publish(bus, 1, 4))
    assert stream.next() == words(1, 4)
    on_bus(url, lambda bus: publish(bus, 4, 6))
    assert stream.next() == words(4, 6)


def test_a_stream_begins_at_a_time_or_at_offsets(file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, *([Entry(str(n).encode(), time_ms=n * 1000)] for n in range(1, 7)))

    assert Following(file_url, subscribe=name, startingTimestamp="4000").next() == words(4, 7)
    assert Following(file_url, subscribe=name, startingTimestamp="9000").next() == []
    assert Following(file_url, subscribe=name, startingOffsets=f'{{"{name}": {{"0": 5}}}}').next() == words(5, 7)


def test_large_ranges_are_cut_between_batches(file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, *(numbers(first, first + 10) for first in range(0, 40, 10)))
    stream = Following(file_url, subscribe=name, minPartitions="3")

    start = stream.reader.initialOffset()
    ranges = [
        part.value for part in stream.reader.partitions(start, stream.reader.latestOffset(start, ReadMaxRows(35)))
    ]

    assert all(isinstance(part, Range) for part in ranges)
    assert [(part.first, part.end) for part in ranges] == [(1, 21), (21, 31), (31, 36)]


# What is gone


def test_messages_that_were_forgotten_are_named(file_url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    strict, lenient = _after_three(file_url, name)

    append(file_url, name, numbers(4, 21))

    with pytest.raises(MessagesLost, match=f"4 to 15 of {name}:0.*failOnDataLoss"):
        strict.next()
    with caplog.at_level(logging.WARNING, "onebus.spark"):
        assert lenient.next() == words(16, 21)
    assert f"4 to 15 of {name}:0" in caplog.text
    assert lenient.next() == []


def test_all_that_is_missing_is_named_before_anything_is_read(file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=2, retention=Retention(max_count=5))
    stream = Following(file_url, subscribe=name)
    stream.next()
    for partition in (0, 1):
        append(file_url, name, numbers(1, 8 + partition), partition=partition)

    with pytest.raises(MessagesLost, match=f"1 to 2 of {name}:0; 1 to 3 of {name}:1"):
        stream.next()


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(file_url: str, name: str) -> None:
    strict, lenient = _after_three(file_url, name)

    on_bus(file_url, lambda bus: bus.topic(name).delete())
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(100, 105))

    with pytest.raises(MessagesLost, match=f"from 4 on of {name}:0.* made anew"):
        strict.next()
    assert lenient.next() == words(100, 105)


def test_a_topic_that_was_deleted_is_missed(file_url: str, name: str) -> None:
    strict, lenient = _after_three(file_url, name)

    on_bus(file_url, lambda bus: bus.topic(name).delete())

    with pytest.raises(MessagesLost, match=f"from 4 on of {name}:0, which was deleted"):
        strict.next()
    assert lenient.next() == []


def test_a_micro_batch_whose_messages_are_gone_cannot_be_repeated(file_url: str, name: str) -> None:
    strict, lenient = _after_three(file_url, name)
    ends = {"offsets": {name: {"0": 6}}, "epochs": (strict.offsets or {})["epochs"]}

    append(file_url, name, numbers(4, 10))

    with pytest.raises(MessagesLost, match=f"4 to 4 of {name}:0"):
        strict.next(end=ends)
    assert lenient.next(end=ends) == ["5"]


def _after_three(url: str, name: str) -> list[Following]:
    """Two streams that have read three messages: one that fails when it misses some, and one that goes on."""
    create_topic(url, name, partitions=1, retention=Retention(max_count=5))
    append(url, name, numbers(1, 4))
    streams = [Following(url, subscribe=name, failOnDataLoss=fails) for fails in ("true", "false")]
    for stream in streams:
        assert stream.next() == words(1, 4)
    return streams


def test_a_topic_that_does_not_exist_is_an_error(file_url: str) -> None:
    with pytest.raises(TopicMissing, match="nowhere"):
        Following(file_url, subscribe="nowhere").next()


def test_a_stream_cannot_begin_behind_the_end(file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=1)

    with pytest.raises(InvalidOption, match="startingOffsets begins at 99"):
        Following(file_url, subscribe=name, startingOffsets=f'{{"{name}": {{"0": 99}}}}').next()
