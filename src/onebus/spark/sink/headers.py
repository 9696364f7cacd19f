"""Headers as a log keeps them, a msgpack map per message, made from columns of names and texts at once."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from onebus.errors import InvalidColumn

_PAIRS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))


def packed_headers(column: pa.Array, *, reserved: str) -> pa.Array:
    """Return headers, which are maps or lists of pairs, as msgpack; null where a row has none.

    Raises:
        InvalidColumn: a name or text is null or no text, or a name starts as those do that the bus has for itself.
    """
    lists = _lists(column)
    pairs = lists.flatten()
    names, texts = pairs.field("key"), pairs.field("value")
    _check(names, texts, reserved)
    cells = _joined(_heads(names, _head_of_text), names, _heads(texts, _head_of_text), texts)
    lengths = pc.list_value_length(lists)
    bodies = pc.binary_join(pa.ListArray.from_arrays(_offsets(lengths), cells), b"")
    counts = pc.fill_null(lengths, 0)
    heads = _per_number(counts, _head_of_map)
    empty = pa.scalar(None, pa.binary())
    return pc.if_else(pc.equal(counts, 0), empty, _joined(heads, bodies))


def _lists(column: pa.Array) -> pa.Array:
    if pa.types.is_map(column.type):
        key, value = column.type.key_type, column.type.item_type
        column = column.cast(pa.list_(pa.struct([("key", key), ("value", value)])))
    return column.cast(_PAIRS)


def _check(names: pa.Array, texts: pa.Array, reserved: str) -> None:
    if names.null_count or texts.null_count:
        raise InvalidColumn("The column headers holds a null. Leave such headers out.")
    try:
        names.cast(pa.string())
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        raise InvalidColumn("The column headers holds bytes that are not UTF-8. Headers are text.") from None
    if pc.any(pc.starts_with(names, reserved)).as_py():
        raise InvalidColumn(
            f"The column headers holds a name with {reserved!r}, which is reserved. Choose another one."
        )


def _offsets(lengths: pa.Array) -> pa.Array:
    ends = pc.cumulative_sum(pc.fill_null(lengths, 0)).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _joined(*columns: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*columns, pa.scalar(b""))


def _heads(texts: pa.Array, head: Callable[[int], bytes]) -> pa.Array:
    return _per_number(pc.binary_length(texts), head)


def _per_number(numbers: pa.Array, head: Callable[[int], bytes]) -> pa.Array:
    """Return what a function makes of each number, calling it once for each that occurs."""
    found = numbers.dictionary_encode()
    return pa.array([head(number) for number in found.dictionary.to_pylist()], pa.binary()).take(found.indices)


def _head_of_text(size: int) -> bytes:
    if size < 32:
        return bytes([0xA0 | size])
    if size < 2**8:
        return b"\xd9" + size.to_bytes(1, "big")
    if size < 2**16:
        return b"\xda" + size.to_bytes(2, "big")
    return b"\xdb" + size.to_bytes(4, "big")


def _head_of_map(count: int) -> bytes:
    if count < 16:
        return bytes([0x80 | count])
    if count < 2**16:
        return b"\xde" + count.to_bytes(2, "big")
    return b"\xdf" + count.to_bytes(4, "big")
