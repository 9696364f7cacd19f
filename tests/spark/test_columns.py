"""Record batches as columns of Arrow."""

import datetime
import decimal
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from onebus.errors import InvalidOption
from onebus.log.batch import Entry, decode, encode
from onebus.spark.columns import Columns, Piece
from onebus.spark.logs import SourceLog
from onebus.spark.parsing import Parser

UTC = datetime.UTC
PAIR = pa.struct({"key": pa.string(), "value": pa.binary()})
ALL = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": pa.list_(pa.field("element", PAIR)),
}
LOG = SourceLog("topic:clicks|3", "clicks", 3)

entries = st.builds(
    Entry,
    st.binary(max_size=20),
    key=st.none() | st.binary(max_size=5),
    headers=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1, max_size=3),
    time_ms=st.none() | st.integers(0, 2_000_000_000_000),
)


def rows_of(pieces: Sequence[Piece], types: dict[str, pa.DataType]) -> list[dict[str, object]]:
    columns = Columns(from_arrow_schema(pa.schema(types)))
    rows: list[dict[str, object]] = columns.record_batch(LOG, pieces).to_pylist()
    return rows


@given(st.lists(st.lists(entries, min_size=1, max_size=20), min_size=1, max_size=4), st.data())
def test_columns_hold_what_the_messages_hold(batches: list[list[Entry]], data: st.DataObject) -> None:
    pieces: list[Piece] = []
    expected: list[dict[str, object]] = []
    next_id = 1
    for batch in batches:
        start = data.draw(st.integers(0, len(batch) - 1))
        rows = data.draw(st.integers(1, len(batch) - start))
        decoded = decode(encode(batch, now_ms=7000, compress=data.draw(st.booleans())))
        pieces.append(Piece(decoded, start, rows, next_id + start))
        for index, entry in enumerate(decoded.entries()[start : start + rows], next_id + start):
            headers = None if not entry.headers else [{"key": k, "value": v.encode()} for k, v in entry.headers.items()]
            time = datetime.datetime.fromtimestamp(0, UTC) + datetime.timedelta(milliseconds=entry.time_ms or 0)
            expected.append(
                {
                    "key": entry.key,
                    "value": entry.value,
                    "topic": "clicks",
                    "partition": 3,
                    "offset": index,
                    "timestamp": time,
                    "headers": headers,
                }
            )
        next_id += len(batch)

    assert rows_of(pieces, ALL) == expected


@pytest.mark.parametrize("types", [{"colour": pa.string()}, {"offset": pa.string()}, {"value": pa.int64()}])
def test_columns_that_the_bus_does_not_have_are_errors(types: dict[str, pa.DataType]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(types))):
        Columns(from_arrow_schema(pa.schema(types)))


# JSON

FIELDS = pa.struct(
    {
        "n": pa.int32(),
        "big": pa.int64(),
        "x": pa.float64(),
        "text": pa.string(),
        "yes": pa.bool_(),
        "at": pa.timestamp("us", tz="UTC"),
        "day": pa.date32(),
        "price": pa.decimal128(10, 2),
        "tags": pa.list_(pa.string()),
        "deep": pa.struct({"a b": pa.int32(), "more": pa.list_(pa.struct({"c": pa.string()}))}),
        "counts": pa.map_(pa.string(), pa.int64()),
    }
)


def parsed(*values: bytes, fields: pa.StructType = FIELDS) -> list[dict[str, object] | None]:
    found: list[dict[str, object] | None] = Parser(fields).parse(values).to_pylist()
    return found


def test_json_becomes_what_the_schema_says() -> None:
    value = b"""{"n": 1, "big": 9007199254740993, "x": 2, "text": "\\u00e9", "yes": true, "at": "2026-01-02T03:04:05Z",
        "day": "2026-01-02", "price": "1.25", "tags": ["a", null], "deep": {"a b": 2, "more": [{"c": "d"}]},
        "counts": {"k": 3}, "unknown": {}}"""

    assert parsed(value) == [
        {
            "n": 1,
            "big": 9007199254740993,
            "x": 2.0,
            "text": "é",
            "yes": True,
            "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "day": datetime.date(2026, 1, 2),
            "price": decimal.Decimal("1.25"),
            "tags": ["a", None],
            "deep": {"a b": 2, "more": [{"c": "d"}]},
            "counts": [("k", 3)],
        }
    ]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"7",
        b"null",
        b"[1]",
        b"\xff",
        b'{"n": 1} {"n": 2}',
        b'"text"',
        b'{"n": "x", ',
        b'{"n":' + b"[" * 99999,
        b'{"n": "x", "z": "\xff"}',
    ],
)
def test_what_is_no_object_is_null(value: bytes) -> None:
    good = b'{"n": 1}'

    found = parsed(good, value, good, fields=pa.struct({"n": pa.int32()}))

    assert found == [{"n": 1}, None, {"n": 1}]


@pytest.mark.parametrize("wrong", [b'"x"', b"99999999999", b"1.5", b"[]", b"{}", b"true"])
def test_a_field_that_is_something_else_is_null_and_the_others_stay(wrong: bytes) -> None:
    found = parsed(b'{"n": %b, "text": "kept"}' % wrong, fields=pa.struct({"n": pa.int32(), "text": pa.string()}))

    assert found == [{"n": None, "text": "kept"}]


def test_a_number_with_more_digits_than_there_is_room_for_is_null() -> None:
    fields = pa.struct({"price": pa.decimal128(4, 2), "all": pa.list_(pa.decimal128(4, 2))})

    found = parsed(b'{"price": 1234.5, "all": [1234.5]}', b'{"price": 1.5, "all": [1.5]}', fields=fields)

    assert found == [{"price": None, "all": None}, {"price": decimal.Decimal("1.5"), "all": [decimal.Decimal("1.5")]}]


@pytest.mark.parametrize(
    ("type_", "wrong", "good"),
    [
        (pa.timestamp("us", tz="UTC"), b'"9999-12-31T23:59:59-10:00"', b'"2026-01-02T03:04:05Z"'),
        (pa.timestamp("us", tz="UTC"), b'"0001-01-01T00:00:00+10:00"', b'"2026-01-02T03:04:05Z"'),
        (pa.decimal128(4, 2), b'"NaN"', b'"1.25"'),
        (pa.decimal128(4, 2), b'"1e999999"', b'"1.25"'),
    ],
)
def test_a_value_beyond_its_type_is_null_and_the_other_messages_stay(
    type_: pa.DataType, wrong: bytes, good: bytes
) -> None:
    fields = pa.struct({"x": type_, "all": pa.list_(type_)})

    found = parsed(*(b'{"x": %b, "all": [%b]}' % (text, text) for text in (good, wrong, good)), fields=fields)

    assert found[0] is not None
    assert found[0]["x"] is not None
    assert found == [found[0], {"x": None, "all": None}, found[0]]


def test_keys_of_maps_are_text() -> None:
    with pytest.raises(InvalidOption, match="option schema names map<int"):
        Parser(pa.struct({"counts": pa.map_(pa.int32(), pa.int64())}))


def test_a_type_that_json_has_no_words_for_is_an_error() -> None:
    with pytest.raises(InvalidOption, match="option schema"):
        Parser(pa.struct({"how_long": pa.duration("us")}))
