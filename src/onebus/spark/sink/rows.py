"""Rows as columns of messages, and those as record batches: by the buffers of Arrow, and never row by row.

Rows come as Spark gives them and are made the same whatever their types were:

    value     binary, never null
    key       binary
    headers   binary, each a msgpack map
    time      int64, milliseconds since 1970
"""

from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from onebus.errors import InvalidColumn, PayloadTooLarge
from onebus.log.batch import Batch, BinaryColumn, Kind, encode_columns
from onebus.log.writer import WriterLimits
from onebus.objects.queue import RESERVED_HEADERS
from onebus.spark.sink.headers import packed_headers
from onebus.spark.sink.options import BYTES, JSON, TEXT

KINDS: Final = {BYTES: Kind.BYTES, TEXT: Kind.TEXT, JSON: Kind.JSON}

# Looks at the JSON without making anything of it.
_json = msgspec.json.Decoder(msgspec.Raw)


def kind_of(form: str | None, values: pa.DataType) -> Kind:
    """Return what messages are for those who consume them: what was asked for, or what their column is."""
    if form is not None:
        return KINDS[form]
    return Kind.TEXT if _is_text(values) else Kind.BYTES


def message_columns(rows: pa.RecordBatch, kind: Kind) -> dict[str, pa.Array]:
    """Return the columns of messages that are not all null.

    Raises:
        InvalidColumn: a row holds what no message can.
        PayloadTooLarge: a row is larger than a message may be.
    """
    columns = {"value": _values(rows.column("value"), kind)}
    names = rows.schema.names
    if "key" in names:
        columns["key"] = _binary(rows.column("key"))
    if "headers" in names:
        columns["headers"] = packed_headers(rows.column("headers"), reserved=RESERVED_HEADERS)
    if "timestamp" in names:
        columns["time"] = _milliseconds(rows.column("timestamp"))
    columns = {name: column for name, column in columns.items() if column.null_count < len(column)}
    _check_sizes(columns)
    return columns


def encoded(messages: pa.RecordBatch, kind: Kind, now_ms: int) -> bytes:
    """Return messages as a record batch; those without a time get `now_ms`."""
    names = messages.schema.names
    time_ms, times = _times(messages.column("time"), now_ms) if "time" in names else (now_ms, None)
    return encode_columns(
        Batch(
            count=messages.num_rows,
            time_ms=time_ms,
            kind=kind,
            values=_buffers(messages.column("value")),
            keys=_nullable(messages.column("key")) if "key" in names else None,
            headers=_nullable(messages.column("headers")) if "headers" in names else None,
            times=times,
        )
    )


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _binary(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())


def _values(column: pa.Array, kind: Kind) -> pa.Array:
    if column.null_count:
        raise InvalidColumn(
            "The column value holds null, which no message can. Filter such rows, or give them a value."
        )
    values = _binary(column)
    if kind is not Kind.BYTES and not _is_text(column.type):
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            raise InvalidColumn("The column value holds bytes that are not UTF-8 text. Write them as bytes.") from None
    if kind is Kind.JSON:
        _check_json(values)
    return values


def _milliseconds(times: pa.Array) -> pa.Array:
    times = pc.floor_temporal(times.cast(pa.timestamp("us")), unit="millisecond")
    return times.cast(pa.timestamp("ms")).cast(pa.int64())


def _check_json(values: pa.Array) -> None:
    for text in values.to_pylist():
        try:
            _json.decode(text)
        except msgspec.DecodeError as error:
            raise InvalidColumn(f"The column value holds what is not JSON: {error}. Write it with to_json.") from None


def _check_sizes(columns: dict[str, pa.Array]) -> None:
    sizes = pc.binary_length(columns["value"])
    for name in ("key", "headers"):
        if name in columns:
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(columns[name]), 0))
    largest, limit = pc.max(sizes).as_py(), WriterLimits().max_message_bytes
    if largest > limit:
        raise PayloadTooLarge(f"A row of {largest} bytes exceeds the limit of a message, which is {limit}. Send less.")


def _times(times: pa.Array, now_ms: int) -> tuple[int, memoryview | None]:
    times = pc.fill_null(times, now_ms)
    bounds = pc.min_max(times).as_py()
    if bounds["min"] == bounds["max"]:
        return bounds["min"], None
    return now_ms, _slice(times, 8).cast("q")


def _buffers(column: pa.Array) -> BinaryColumn:
    """Return the buffers of a column without nulls, as if it was the first that its buffers hold."""
    _, ends, data = column.buffers()
    offsets = pa.Array.from_buffers(pa.int32(), len(column) + 1, [None, ends], offset=column.offset)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first:
        offsets = pc.subtract(offsets, pa.scalar(first, pa.int32()))
    return BinaryColumn(None, _slice(offsets, 4).cast("i"), memoryview(data or b"")[first:last])


def _nullable(column: pa.Array) -> BinaryColumn | None:
    if column.null_count == len(column):
        return None
    if not column.null_count:
        return _buffers(column)
    return _buffers(pc.fill_null(column, b""))._replace(validity=_validity(column))


def _validity(column: pa.Array) -> memoryview:
    """Return a bit for each cell, from the first bit on, wherever the column begins in its buffer."""
    count, (skipped, shift) = len(column), divmod(column.offset, 8)
    bits = int.from_bytes(memoryview(column.buffers()[0])[skipped : (column.offset + count + 7) // 8], "little")
    return memoryview((bits >> shift & (1 << count) - 1).to_bytes((count + 7) // 8, "little"))


def _slice(numbers: pa.Array, size: int) -> memoryview:
    start = numbers.offset * size
    return memoryview(numbers.buffers()[1])[start : start + len(numbers) * size]
