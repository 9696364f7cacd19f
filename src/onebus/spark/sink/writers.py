"""What Spark calls to write: in the tasks `write`, and then `commit` or `abort` for all of them in the driver."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from onebus.spark.connection import connect
from onebus.spark.sink.committing import Committing
from onebus.spark.sink.options import WriteOptions
from onebus.spark.sink.staging import Attempt
from onebus.spark.sink.task import StagingTask


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    sink_id: str
    attempt: Attempt


class BusWriter(DataSourceArrowWriter):
    """Writes a DataFrame, once. With a sink id, what was written before under the same id is not written again."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._sink_id = options.sink_id or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self._options, self._sink_id, self._options.batch_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        committing = _committing(self._options, self._sink_id)
        attempts = _attempts(messages)
        if self._options.sink_id is None:
            connect(self._options.urls).run(committing.commit_once(attempts))
        else:
            connect(self._options.urls).run(committing.commit(self._options.batch_id, attempts))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._options, self._sink_id, messages)


class BusStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream, each once, however often Spark runs them."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        query_id = _property("sql.streaming.queryId")
        batch_id = int(_property("streaming.sql.batchId"))
        return _write(self._options, self._options.sink_id or query_id, batch_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for sink_id in _sinks(messages):
            work = _committing(self._options, sink_id).commit(batchId, _attempts(messages))
            connect(self._options.urls).run(work)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for sink_id in _sinks(messages):
            _abort(self._options, sink_id, messages)


def _write(options: WriteOptions, sink_id: str, batch_id: int, rows: Iterator[pa.RecordBatch]) -> Written:
    turn = batch_id + _context().partitionId()
    return Written(sink_id, StagingTask(connect(options.urls), options, turn).run(rows))


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("Only a task of Spark writes.")
    return context


def _property(name: str) -> str:
    value = _context().getLocalProperty(name)
    if value is None:
        raise RuntimeError(f"Spark does not say what {name} is; only a stream has that.")
    return str(value)


def _abort(options: WriteOptions, sink_id: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    connect(options.urls).run(_committing(options, sink_id).abort(_attempts(messages)))


def _committing(options: WriteOptions, sink_id: str) -> Committing:
    return Committing(connect(options.urls).store, options, sink_id)


def _attempts(messages: Sequence[WriterCommitMessage | None]) -> list[Attempt]:
    return [message.attempt for message in messages if isinstance(message, Written)]


def _sinks(messages: Sequence[WriterCommitMessage | None]) -> set[str]:
    """Return the id of the sink, which only the tasks of a stream know."""
    return {message.sink_id for message in messages if isinstance(message, Written)}
