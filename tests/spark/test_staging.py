"""What a task holds while its rows wait for others."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from onebus.errors import StagingLost
from onebus.objects.topics.description import TopicDescription
from onebus.spark.connection import Connection
from onebus.spark.sink.options import WriteOptions
from onebus.spark.sink.staging import Stage
from onebus.spark.sink.targets import Target
from onebus.spark.sink.task import StagingTask
from onebus.stores.base import MEBIBYTE
from tests.messages import batch_of


class Nowhere(Connection):
    """A store that has every topic, and keeps nothing."""

    def __init__(self, partitions: int) -> None:
        self._topic = TopicDescription(partitions)
        self._ids = count(1)
        self.store: Any = _Nothing()

    def begin(self, work: Any) -> "Future[Any]":
        is_append = work.__name__ == "_append"
        work.close()
        done: Future[Any] = Future()
        done.set_result((next(self._ids),) * 2 if is_append else self._topic)
        return done


class _Nothing:
    async def stage(self, *_: object, **__: object) -> None: ...

    async def append(self, *_: object, **__: object) -> None: ...

    async def drop(self, *_: object, **__: object) -> None: ...


@pytest.mark.parametrize("few", [1, 5])
def test_rows_that_wait_do_not_keep_those_that_came_with_them(few: int) -> None:
    task = StagingTask(Nowhere(2), WriteOptions(("",), topic="t"), 0)
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


class Slow(Connection):
    """A store that says of each batch which ids it got, after a while, and notes when something is dropped."""

    def __init__(self, ranges: list[tuple[int, int]], seconds: float = 0.0) -> None:
        self.store: Any = _Nothing()
        self._ranges = iter(ranges)
        self._seconds = seconds
        self.appending: list[Future[Any]] = []
        self.were_all_there: bool | None = None

    def begin(self, work: Any) -> "Future[Any]":
        name = work.__name__
        work.close()
        done: Future[Any] = Future()
        if name == "_append":
            self.appending.append(done)
            threading.Timer(self._seconds, done.set_result, [next(self._ranges)]).start()
        else:
            if name == "drop":
                self.were_all_there = all(one.done() for one in self.appending)
            done.set_result(None)
        return done


@pytest.mark.parametrize("ranges", [[(1, 5), (1, 5)], [(1, 5), (6, 9), (3, 7)], [(1, 5), (7, 8)]])
def test_ids_that_a_server_has_given_twice_or_left_out_are_noticed(ranges: list[tuple[int, int]]) -> None:
    stage = Stage(Slow(ranges))
    for _ in ranges:
        stage.add(Target("t"), "topic:t|0", batch_of("x"))

    with pytest.raises(StagingLost):
        stage.finish()


def test_batches_may_arrive_in_another_order() -> None:
    stage = Stage(Slow([(6, 9), (1, 5)]))
    for _ in range(2):
        stage.add(Target("t"), "topic:t|0", batch_of("x"))

    assert [cargo.batches for cargo in stage.finish().cargos] == [[(0, 9), (0, 5)]]


def test_what_is_discarded_has_arrived_before() -> None:
    connection = Slow([(1, 5), (6, 9)], seconds=0.1)
    stage = Stage(connection)
    for _ in range(2):
        stage.add(Target("t"), "topic:t|0", batch_of("x"))

    stage.discard()

    assert connection.were_all_there
