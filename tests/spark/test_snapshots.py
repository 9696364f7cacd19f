"""Which messages a data frame has, asked of its reader as Spark asks it."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from onebus import Bus
from onebus.errors import InvalidOption, MessagesLost, TopicMissing
from onebus.log.batch import Entry
from onebus.log.retention import Retention
from onebus.objects.topics.names import log_of
from onebus.spark import slices
from onebus.spark.options import ReadOptions
from onebus.spark.ranges import BusPartition
from onebus.spark.reading import BusReader
from onebus.stores import Store
from tests.spark.bus import append, create_topic, numbers, on_bus

COLUMNS = pa.schema({"value": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()})


class Snapshot:
    """What a data frame with some options has."""

    def __init__(self, url: str, **options: object) -> None:
        given = {"url": url, **{name: str(option) for name, option in options.items()}}
        self._reader = BusReader(ReadOptions.parse(given, streaming=False), from_arrow_schema(COLUMNS))
        self.partitions = self._reader.partitions()

    def tasks(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of each task."""
        for partition in self.partitions:
            assert isinstance(partition, BusPartition)
            yield [row for batch in self._reader.read(partition) for row in batch.to_pylist()]

    def rows(self) -> list[dict[str, Any]]:
        return [row for rows in self.tasks() for row in rows]

    def texts(self, partition: int | None = None) -> list[str]:
        return [row["value"].decode() for row in self.rows() if partition in (None, row["partition"])]


def words(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


@pytest.mark.parametrize("pieces", [1, 2, 3, 50])
def test_large_ranges_are_cut_between_batches(file_url: str, name: str, pieces: int) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, *(numbers(first, first + 10) for first in range(0, 100, 10)))

    tasks = list(Snapshot(file_url, subscribe=name, minPartitions=pieces).tasks())

    assert [row["value"].decode() for rows in tasks for row in rows] == words(0, 100)
    assert len(tasks) == min(pieces, 10)
    assert all(len(rows) % 10 == 0 for rows in tasks)


def test_partitions_are_cut_in_proportion(file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=3)
    append(file_url, name, *(numbers(first, first + 10) for first in range(0, 90, 10)))
    append(file_url, name, numbers(90, 100), partition=1)

    snapshot = Snapshot(file_url, subscribe=name, minPartitions=10)

    assert [(part.value.log.partition, part.value.size) for part in snapshot.partitions] == [(0, 10)] * 9 + [(1, 10)]


def test_planning_looks_at_no_message(file_url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_topic(file_url, name)
    append(file_url, name, numbers(1, 6))

    with monkeypatch.context() as patched:
        patched.delattr(Store, "read")
        snapshot = Snapshot(file_url, subscribe=name)

    assert snapshot.texts() == words(1, 6)


def test_offsets_begin_with_the_first_and_end_before_the_second(url: str, name: str) -> None:
    create_topic(url, name)
    append(url, name, numbers(1, 6), numbers(6, 11))
    append(url, name, numbers(1, 4), partition=1)
    starting, ending = json.dumps({name: {"0": 4, "1": -2}}), json.dumps({name: {"0": 8, "1": -1}})

    snapshot = Snapshot(url, subscribe=name, startingOffsets=starting, endingOffsets=ending)

    assert snapshot.texts(0) == words(4, 8)
    assert snapshot.texts(1) == words(1, 4)


def test_the_offset_0_is_the_beginning(file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(1, 4))

    assert Snapshot(file_url, subscribe=name, startingOffsets=json.dumps({name: {"0": 0}})).texts() == words(1, 4)


@pytest.mark.parametrize(
    ("starting", "ending", "named"),
    [
        ({"0": 1}, None, "startingOffsets says nothing about partition 1"),
        ({"0": 1, "1": 1, "2": 1}, None, "startingOffsets names partition 2"),
        (None, {"0": 1}, "endingOffsets says nothing about partition 1"),
        ({"0": 3, "1": 1}, {"0": 2, "1": 1}, "startingOffsets begins at 3"),
    ],
)
def test_offsets_that_do_not_fit_the_topic_are_errors(
    file_url: str, name: str, starting: dict[str, int] | None, ending: dict[str, int] | None, named: str
) -> None:
    create_topic(file_url, name)
    append(file_url, name, numbers(1, 6))
    given = {"startingOffsets": starting, "endingOffsets": ending}
    options = {option: json.dumps({name: offsets}) for option, offsets in given.items() if offsets is not None}

    with pytest.raises(InvalidOption, match=named):
        Snapshot(file_url, subscribe=name, **options)


def test_times_bound_what_is_read(url: str, name: str) -> None:
    create_topic(url, name, partitions=1)
    append(url, name, *([Entry(str(n).encode(), time_ms=n * 1000)] for n in range(1, 10)))

    assert Snapshot(url, subscribe=name, startingTimestamp=3000, endingTimestamp=6001).texts() == words(3, 7)
    assert Snapshot(url, subscribe=name, startingTimestamp=10_000).texts() == []


def test_topics_are_chosen_by_name_by_pattern_and_by_partition(file_url: str) -> None:
    for topic in ("clicks", "clocks", "orders"):
        create_topic(file_url, topic)
        for partition in (0, 1):
            append(file_url, topic, [Entry(f"{topic}{partition}".encode())], partition=partition)

    def found(**options: str) -> set[str]:
        return set(Snapshot(file_url, **options).texts())

    assert found(subscribe="clicks, orders") == {"clicks0", "clicks1", "orders0", "orders1"}
    assert found(subscribePattern="cl.cks") == {"clicks0", "clicks1", "clocks0", "clocks1"}
    assert found(subscribePattern="cl") == set()
    assert found(assign='{"clicks": [1], "orders": [0]}') == {"clicks1", "orders0"}


def test_what_does_not_exist_is_an_error(file_url: str, name: str) -> None:
    create_topic(file_url, name)

    with pytest.raises(TopicMissing, match="nowhere"):
        Snapshot(file_url, subscribe="nowhere")
    with pytest.raises(InvalidOption, match="subscribe names 'nowhere'"):
        Snapshot(file_url, kind="queue", subscribe="nowhere")
    with pytest.raises(InvalidOption, match="assign names partition 7"):
        Snapshot(file_url, assign=json.dumps({name: [7]}))


# Feeds and queues


def test_a_feed_has_the_messages_of_its_channels(url: str, name: str) -> None:
    async def publish(bus: Bus) -> None:
        for n in range(5):
            await bus.publish(f"/{name}/a", n)
        await bus.publish(f"/{name}/b", 9, user_ids=[7])
        await bus.publish(f"/{name}/b", 10, site_id="berlin")

    on_bus(url, publish)

    rows = Snapshot(url, kind="feed", subscribePattern=f"/{name}/.*").rows()
    assert [(row["topic"], row["offset"], row["value"]) for row in rows] == [
        *((f"/{name}/a", n + 1, str(n).encode()) for n in range(5)),
        (f"/{name}/b", 1, b"9"),
    ]
    assert Snapshot(url, kind="feed", subscribe=f"/{name}/b", site="berlin").texts() == ["10"]
    assert Snapshot(url, kind="feed", subscribe="/nobody").texts() == []


def test_a_queue_has_what_is_not_done_and_keeps_it(url: str, name: str) -> None:
    async def fill(bus: Bus) -> None:
        async with bus.queue(name, ttl=600) as queue:
            for n in range(1, 7):
                await queue.push(f"m{n}")
            async for message in queue.consume(lease=60, wait=False):
                if message.id in (2, 5):
                    await message.ack()
                else:
                    await message.release()
                if message.id == 6:
                    break

    on_bus(url, fill)

    for pieces in (1, 3):
        snapshot = Snapshot(url, kind="queue", subscribe=name, minPartitions=pieces)
        assert snapshot.texts() == ["m1", "m3", "m4", "m6"]
        assert sum(part.value.size for part in snapshot.partitions) == 4
    assert Snapshot(url, kind="queue", subscribePattern=name).texts() == ["m1", "m3", "m4", "m6"]
    assert on_bus(url, lambda bus: bus.queue(name).count()) == 4


def test_dead_letters_are_read(url: str, name: str) -> None:
    async def fill(bus: Bus) -> None:
        async with bus.queue(name, ttl=600) as queue:
            await asyncio.gather(queue.push("good"), queue.push("broken"))
            async for message in queue.consume(lease=60, wait=False):
                if message.data == "broken":
                    await message.reject("no good")
                    break

    on_bus(url, fill)

    assert Snapshot(url, kind="dead", subscribe=name).texts() == ["broken"]
    assert Snapshot(url, kind="dead", subscribePattern=f"{name}|another").texts() == ["broken"]


# What is gone


def test_messages_that_were_forgotten_are_named(url: str, name: str) -> None:
    create_topic(url, name, partitions=1, retention=Retention(max_count=5))
    append(url, name, numbers(1, 4), numbers(4, 11))
    options = {"subscribe": name, "startingOffsets": json.dumps({name: {"0": 2}})}

    with pytest.raises(MessagesLost, match=f" 2 to 5 of {name}:0"):
        Snapshot(url, **options)
    assert Snapshot(url, **options, failOnDataLoss="false").texts() == words(6, 11)
    assert Snapshot(url, subscribe=name).texts() == words(6, 11)


def test_messages_that_never_were_are_named(file_url: str, name: str) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(1, 4))

    with pytest.raises(MessagesLost, match=f" 4 to 8 of {name}:0"):
        Snapshot(file_url, subscribe=name, endingOffsets=json.dumps({name: {"0": 9}}))


def test_messages_that_go_after_planning_are_named(url: str, name: str) -> None:
    create_topic(url, name, partitions=1, retention=Retention(max_count=10))
    append(url, name, numbers(1, 11))
    strict, lenient = (Snapshot(url, subscribe=name, failOnDataLoss=fails) for fails in ("true", "false"))

    append(url, name, numbers(11, 15))

    with pytest.raises(MessagesLost, match=f" 1 to 4 of {name}:0"):
        strict.rows()
    assert lenient.texts() == words(5, 11)


def test_a_log_that_is_cleared_after_planning_is_missed(url: str, name: str) -> None:
    create_topic(url, name, partitions=1)
    append(url, name, numbers(1, 11))
    snapshot = Snapshot(url, subscribe=name)

    on_bus(url, lambda bus: bus.link.store.clear(log_of(name, 0)))

    with pytest.raises(MessagesLost, match=f" 1 to 10 of {name}:0"):
        snapshot.rows()


def test_a_log_that_was_made_anew_is_not_taken_for_the_old_one(url: str, name: str) -> None:
    create_topic(url, name, partitions=1)
    append(url, name, numbers(1, 11))
    strict, lenient = (Snapshot(url, subscribe=name, failOnDataLoss=fails) for fails in ("true", "false"))

    on_bus(url, lambda bus: bus.topic(name).delete())
    create_topic(url, name, partitions=1)
    append(url, name, numbers(101, 121))

    with pytest.raises(MessagesLost, match=f" 1 to 10 of {name}:0, which was deleted"):
        strict.rows()
    assert lenient.rows() == []


def test_what_compaction_removed_is_not_missed(url: str, name: str) -> None:
    create_topic(url, name, partitions=1, compact=True)
    append(url, name, [Entry(b"old", key=b"k")], [Entry(b"other", key=b"x")], [Entry(b"new", key=b"k")])
    on_bus(url, lambda bus: bus.topic(name).compact())

    assert Snapshot(url, subscribe=name, startingOffsets=json.dumps({name: {"0": 1}})).texts() == ["other", "new"]


@pytest.mark.parametrize("where", ["key", "headers"])
def test_keys_and_headers_count_for_what_is_held_at_once(
    file_url: str, name: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(slices, "BYTES", 2500)
    create_topic(file_url, name, partitions=1)
    large: dict[str, Any] = {"key": b"x" * 1000} if where == "key" else {"headers": {"name": "x" * 1000}}
    append(file_url, name, *([Entry(b"1", **large)] for _ in range(7)))
    options = ReadOptions.parse({"url": file_url, "subscribe": name}, streaming=False)
    reader = BusReader(options, from_arrow_schema(COLUMNS))

    (task,) = reader.partitions()

    assert [batch.num_rows for batch in reader.read(task)] == [3, 3, 1]


def test_more_messages_than_fit_into_one_slice_are_read(url: str, name: str) -> None:
    create_topic(url, name, partitions=1)
    large = b"x" * 3 * 1024 * 1024
    append(url, name, *([Entry(large), Entry(str(n).encode())] for n in range(5)))

    rows = Snapshot(url, subscribe=name).rows()

    assert [row["offset"] for row in rows] == list(range(1, 11))
    assert [row["value"] for row in rows[1::2]] == [str(n).encode() for n in range(5)]
