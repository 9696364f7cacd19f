"""A task's half of a write: rows are sorted by where they go, made into record batches, and staged."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa

from onebus.errors import BusError
from onebus.log.batch import Kind
from onebus.log.writer import WriterLimits
from onebus.spark.connection import Connection
from onebus.spark.logs import FEED
from onebus.spark.sink.options import JSON, WriteOptions
from onebus.spark.sink.routes import Routes
from onebus.spark.sink.rows import encoded, kind_of, message_columns
from onebus.spark.sink.staging import Attempt, Stage
from onebus.spark.sink.targets import Target, describe, log_of_target
from onebus.stores.base import MEBIBYTE

MAX_WAITING_BYTES: Final = 32 * MEBIBYTE
"""What a task holds of rows whose batches are not full; beyond that the largest of them leave."""


class StagingTask:
    """Stages the rows of one attempt of a task."""

    def __init__(self, connection: Connection, options: WriteOptions, turn: int) -> None:
        self._options = options
        self._stage = Stage(connection)
        self._routes = Routes(options, lambda topic: connection.run(describe(connection.store, options, topic)), turn)
        self._waiting: dict[Target, _Waiting] = {}
        self._waiting_bytes = 0
        self._limits = WriterLimits()
        self._kind = Kind.BYTES

    def run(self, rows: Iterator[pa.RecordBatch]) -> Attempt:
        """Stage all rows, and return where they are. Where that fails, nothing is left of them."""
        try:
            for batch in rows:
                if batch.num_rows:
                    self._take(batch)
            for target in list(self._waiting):
                self._leave(target)
            return self._stage.finish()
        except BaseException:
            # What is left behind nevertheless ends by itself.
            with suppress(BusError):
                self._stage.discard()
            raise

    def _take(self, rows: pa.RecordBatch) -> None:
        form = JSON if self._options.kind == FEED else self._options.form
        self._kind = kind_of(form, rows.column("value").type)
        columns = message_columns(rows, self._kind)
        messages = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        touched: set[Target] = set()
        for target, its in self._routes.split(rows, messages):
            touched.add(target)
            for part in self._parts(its):
                self._add(target, part)
        while self._waiting_bytes > MAX_WAITING_BYTES:
            self._leave(max(self._waiting, key=lambda target: self._waiting[target].size))
        for target in touched & self._waiting.keys():
            self._waiting[target].detach()

    def _add(self, target: Target, part: pa.RecordBatch) -> None:
        size = _size(part)
        waiting = self._waiting.get(target)
        if waiting is not None and not self._fits(waiting.count + part.num_rows, waiting.size + size):
            self._leave(target)
        waiting = self._waiting.setdefault(target, _Waiting())
        waiting.add(part, size)
        self._waiting_bytes += size
        # Where no other row has room, there is nothing to wait for.
        if not self._fits(waiting.count + 1, waiting.size):
            self._leave(target)

    def _parts(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Cut messages in halves until each part is small enough for one batch."""
        if messages.num_rows == 1 or self._fits(messages.num_rows, _size(messages)):
            yield messages
            return
        middle = messages.num_rows // 2
        yield from self._parts(messages.slice(0, middle))
        yield from self._parts(messages.slice(middle))

    def _fits(self, count: int, size: int) -> bool:
        return count <= self._limits.max_batch_messages and size <= self._limits.max_batch_bytes

    def _leave(self, target: Target) -> None:
        waiting = self._waiting.pop(target)
        self._waiting_bytes -= waiting.size
        blob = encoded(waiting.together(), self._kind, time.time_ns() // 1_000_000)
        self._stage.add(target, log_of_target(self._options, target), blob)


class _Waiting:
    """The rows of one target that wait for others to fill a batch with them."""

    def __init__(self) -> None:
        self._parts: list[pa.RecordBatch] = []
        self._detached = 0
        self.count = 0
        self.size = 0

    def add(self, part: pa.RecordBatch, size: int) -> None:
        self._parts.append(part)
        self.count += part.num_rows
        self.size += size

    def detach(self) -> None:
        """Copy what came last. It is a part of what Spark has sent, and would keep all of that as long as it waits."""
        for index in range(self._detached, len(self._parts)):
            part = self._parts[index]
            self._parts[index] = part.take(pa.arange(0, part.num_rows))
        self._detached = len(self._parts)

    def together(self) -> pa.RecordBatch:
        if len(self._parts) == 1:
            return self._parts[0]
        # Columns that are all null are left out of some parts, and not of others.
        table = pa.concat_tables([pa.Table.from_batches([part]) for part in self._parts], promote_options="default")
        return table.combine_chunks().to_batches()[0]


def _size(messages: pa.RecordBatch) -> int:
    return int(messages.nbytes)
