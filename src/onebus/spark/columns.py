"""From record batches to the columns of a data frame. A batch holds Arrow's own buffers, so no message is touched."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from onebus.errors import InvalidOption
from onebus.log.batch import Batch, BinaryColumn, decode_headers
from onebus.spark.logs import SourceLog
from onebus.spark.parsing import Parser

_TIMESTAMP = pa.timestamp("us", tz="UTC")


class Piece(NamedTuple):
    """Some messages of a batch, one after the other."""

    batch: Batch
    start: int
    rows: int
    first_id: int


Column = Callable[[SourceLog, Sequence[Piece]], pa.Array]


class Columns:
    """Makes the columns that a schema asks for."""

    def __init__(self, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._columns = [_column(field) for field in self._schema]

    def record_batch(self, log: SourceLog, pieces: Sequence[Piece]) -> pa.RecordBatch:
        """Return messages of one log as one record batch."""
        arrays = [column(log, pieces) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _column(field: pa.Field) -> Column:
    if field.name == "value":
        if pa.types.is_binary(field.type):
            return _values
        if pa.types.is_string(field.type):
            return _texts
        if pa.types.is_struct(field.type):
            return _Parsed(field.type)
    elif field.name in _TYPES and field.type == _TYPES[field.name]:
        return _BY_NAME[field.name]
    raise InvalidOption(
        f"The schema has the column {field.name!r} with the type {field.type}, which the bus does not have. "
        f"It has {', '.join(_TYPES)}, and value as binary, string or struct."
    )


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _count(pieces: Sequence[Piece]) -> int:
    return sum(piece.rows for piece in pieces)


def _binary(column: BinaryColumn | None, piece: Piece) -> pa.Array:
    if column is None:
        return pa.nulls(piece.rows, pa.binary())
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    array = pa.Array.from_buffers(pa.binary(), piece.batch.count, buffers)
    return array if piece.rows == piece.batch.count else array.slice(piece.start, piece.rows)


def _values(_: SourceLog, pieces: Sequence[Piece]) -> pa.Array:
    return _joined([_binary(piece.batch.values, piece) for piece in pieces])


def _texts(log: SourceLog, pieces: Sequence[Piece]) -> pa.Array:
    """Values as text; what is no text is null."""
    values = _values(log, pieces)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


class _Parsed:
    """Values as what their JSON says."""

    def __init__(self, type_: pa.StructType) -> None:
        self._parser = Parser(type_)

    def __call__(self, log: SourceLog, pieces: Sequence[Piece]) -> pa.Array:
        return self._parser.parse(_values(log, pieces).to_pylist())


def _keys(_: SourceLog, pieces: Sequence[Piece]) -> pa.Array:
    if all(piece.batch.keys is None for piece in pieces):
        return pa.nulls(_count(pieces), pa.binary())
    return _joined([_binary(piece.batch.keys, piece) for piece in pieces])


def _topics(log: SourceLog, pieces: Sequence[Piece]) -> pa.Array:
    return pa.repeat(pa.scalar(log.topic, pa.string()), _count(pieces))


def _partitions(log: SourceLog, pieces: Sequence[Piece]) -> pa.Array:
    return pa.repeat(pa.scalar(log.partition, pa.int32()), _count(pieces))


def _offsets(_: SourceLog, pieces: Sequence[Piece]) -> pa.Array:
    runs: list[pa.Array] = []
    first, end = pieces[0].first_id, pieces[0].first_id
    for piece in pieces:
        if piece.first_id != end:
            runs.append(pa.arange(first, end))
            first = piece.first_id
        end = piece.first_id + piece.rows
    return _joined([*runs, pa.arange(first, end)])


def _timestamps(_: SourceLog, pieces: Sequence[Piece]) -> pa.Array:
    return _joined([_times(piece) for piece in pieces])


def _times(piece: Piece) -> pa.Array:
    times = piece.batch.times
    if times is None:
        return pa.repeat(pa.scalar(piece.batch.time_ms * 1000, pa.int64()).cast(_TIMESTAMP), piece.rows)
    array = pa.Array.from_buffers(pa.timestamp("ms", tz="UTC"), piece.batch.count, [None, pa.py_buffer(times)])
    return array.slice(piece.start, piece.rows).cast(_TIMESTAMP)


def _headers(_: SourceLog, pieces: Sequence[Piece]) -> pa.Array:
    cells: list[list[tuple[str, bytes]] | None] = []
    for piece in pieces:
        for cell in _binary(piece.batch.headers, piece).to_pylist():
            headers = decode_headers(cell)
            cells.append(None if headers is None else [(name, text.encode()) for name, text in headers.items()])
    return pa.array(cells, _TYPES["headers"])


_BY_NAME: dict[str, Column] = {
    "key": _keys,
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "headers": _headers,
}
_TYPES = {
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "headers": pa.list_(pa.field("element", pa.struct({"key": pa.string(), "value": pa.binary()}))),
}
