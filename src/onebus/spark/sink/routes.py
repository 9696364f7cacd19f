"""Which row goes where: to the partition it names, to that of its key, or to one of all in turn."""

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from onebus.errors import InvalidColumn
from onebus.objects.topics.description import TopicDescription
from onebus.spark.logs import TOPIC
from onebus.spark.sink.options import WriteOptions, check_target
from onebus.spark.sink.targets import Target

SPREAD_ROWS: Final = 10_000
"""So many rows in a row go to one partition, if they do not say to which: as many as Spark hands over at once, so that
nothing has to be sorted."""


class Routes:
    """Sorts rows by their targets. `turn` is where rows begin that may go anywhere."""

    def __init__(self, options: WriteOptions, describe: Callable[[str], TopicDescription], turn: int) -> None:
        self._options = options
        self._describe = describe
        self._topics: dict[str, TopicDescription] = {}
        self._turn = turn

    def split(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> Iterator[tuple[Target, pa.RecordBatch]]:
        """Yield the messages of some rows by their targets. Those with the same target keep their order.

        Raises:
            InvalidColumn: a row names no topic, or a partition that does not exist.
        """
        if self._options.topic is not None:
            yield from self._split_topic(self._options.topic, rows, messages)
            return
        names = rows.column("topic").cast(pa.string()).dictionary_encode()
        if names.null_count:
            raise InvalidColumn(
                "The column topic holds null. Give every row a topic, or all of them with the option topic."
            )
        for number, (of_name, its) in _groups(names.indices, rows, messages):
            yield from self._split_topic(names.dictionary[number].as_py(), of_name, its)

    def _split_topic(
        self, name: str, rows: pa.RecordBatch, messages: pa.RecordBatch
    ) -> Iterator[tuple[Target, pa.RecordBatch]]:
        if self._options.kind != TOPIC:
            check_target(self._options, name)
            yield Target(name), messages
            return
        topic = self._topics.get(name)
        if topic is None:
            check_target(self._options, name)
            topic = self._topics[name] = self._describe(name)
        for partition, (its,) in _groups(self._partitions(name, topic, rows, messages), messages):
            yield Target(name, partition), its

    def _partitions(
        self, name: str, topic: TopicDescription, rows: pa.RecordBatch, messages: pa.RecordBatch
    ) -> pa.Array:
        found = pa.nulls(rows.num_rows, pa.int64())
        if "partition" in rows.schema.names:
            found = rows.column("partition").cast(pa.int64())
            bounds = pc.min_max(found).as_py()
            if bounds["min"] is not None and (bounds["min"] < 0 or bounds["max"] >= topic.partitions):
                raise InvalidColumn(
                    f"The column partition goes from {bounds['min']} to {bounds['max']}, "
                    f"but {name!r} has the partitions 0 to {topic.partitions - 1}."
                )
        if found.null_count and "key" in messages.schema.names:
            found = pc.coalesce(found, _by_key(messages.column("key"), topic))
        if found.null_count:
            found = pc.coalesce(found, self._in_turn(len(found), topic.partitions))
        return found

    def _in_turn(self, count: int, partitions: int) -> pa.Array:
        numbers = []
        for start in range(0, count, SPREAD_ROWS):
            numbers.append(pa.repeat(pa.scalar(self._turn % partitions, pa.int64()), min(SPREAD_ROWS, count - start)))
            self._turn += 1
        return pa.concat_arrays(numbers)


def _by_key(keys: pa.Array, topic: TopicDescription) -> pa.Array:
    """Return the partition of each key, and null where there is none; each key is looked at once."""
    found = keys.dictionary_encode()
    partitions = [topic.partition_of(key) for key in found.dictionary.to_pylist()]
    return pa.array(partitions, pa.int64()).take(found.indices)


def _groups(numbers: pa.Array, *batches: pa.RecordBatch) -> Iterator[tuple[int, tuple[pa.RecordBatch, ...]]]:
    """Yield the rows of each number, in their order, from all of the batches."""
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] == bounds["max"]:
        yield bounds["min"], batches
        return
    order = pc.array_sort_indices(numbers)
    batches = tuple(batch.take(order) for batch in batches)
    runs = pc.run_end_encode(numbers.take(order))
    start = 0
    for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield number, tuple(batch.slice(start, end - start) for batch in batches)
        start = end
