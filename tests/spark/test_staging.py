"""What a task holds while its rows wait for others."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from onebus.objects.topics.description import TopicDescription
from onebus.spark.connection import Connection
from onebus.spark.sink.options import WriteOptions
from onebus.spark.sink.task import StagingTask
from onebus.stores.base import MEBIBYTE


class Nowhere(Connection):
    """A store that has every topic, and keeps nothing."""

    def __init__(self, partitions: int) -> None:
        self._topic = TopicDescription(partitions)
        self.store: Any = _Nothing()

    def begin(self, work: Any) -> "Future[Any]":
        work.close()
        done: Future[Any] = Future()
        done.set_result(self._topic)
        return done


class _Nothing:
    async def touch(self, *_: object, **__: object) -> None: ...

    async def append(self, *_: object, **__: object) -> None: ...


@pytest.mark.parametrize("few", [1, 5])
def test_rows_that_wait_do_not_keep_those_that_came_with_them(few: int) -> None:
    task = StagingTask(Nowhere(2), WriteOptions(("",), topic="t"), "staging", 0)
    partitions = [0] * 100 + [1] * few
    before = pa.total_allocated_bytes()
    held: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for _ in range(50):
            values = pa.array([b"x" * 10_000] * len(partitions))
            yield pa.RecordBatch.from_arrays([values, pa.array(partitions)], ["value", "partition"])
            del values
            held.append(pa.total_allocated_bytes() - before - task._waiting_bytes)

    task.run(rows())

    assert len(held) == 50
    # What came last is still on its way.
    assert max(held) < 4 * MEBIBYTE
