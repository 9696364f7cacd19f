"""Rows become the same batches, in the same partitions, as messages that are published one by one."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebus.errors import InvalidColumn, PayloadTooLarge
from onebus.log.batch import Entry, Kind, decode, encode
from onebus.objects.queue import RESERVED_HEADERS
from onebus.objects.topics.description import TopicDescription
from onebus.spark.sink.headers import packed_headers
from onebus.spark.sink.options import WriteOptions
from onebus.spark.sink.routes import SPREAD_ROWS, Routes
from onebus.spark.sink.rows import encoded, kind_of, message_columns
from onebus.spark.sink.targets import Target

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMES = pa.timestamp("us", tz="UTC")


def header_names(max_size: int) -> st.SearchStrategy[str]:
    """Names that anybody may use. Hypothesis finds the others in the code."""
    return st.text(max_size=max_size).filter(lambda name: not name.startswith(RESERVED_HEADERS))


rows = st.fixed_dictionaries(
    {
        "value": st.binary(max_size=50),
        "key": st.none() | st.binary(max_size=10),
        "headers": st.none() | st.dictionaries(header_names(40), st.text(max_size=40), max_size=20),
        "time_ms": st.none() | st.integers(-(10**12), 10**13),
    }
)


def table_of(given: list[dict[str, Any]]) -> pa.RecordBatch:
    headers = [
        None if row["headers"] is None else [(name, text.encode()) for name, text in row["headers"].items()]
        for row in given
    ]
    times = [None if row["time_ms"] is None else EPOCH + timedelta(milliseconds=row["time_ms"]) for row in given]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row["value"] for row in given], pa.binary()),
            pa.array([row["key"] for row in given], pa.binary()),
            pa.array(
                [None if one is None else [{"key": key, "value": value} for key, value in one] for one in headers],
                PAIRS,
            ),
            pa.array(times, TIMES),
        ],
        ["value", "key", "headers", "timestamp"],
    )


def messages_of(given: pa.RecordBatch, kind: Kind = Kind.BYTES) -> pa.RecordBatch:
    columns = message_columns(given, kind)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


@given(st.lists(rows, min_size=1, max_size=40), st.data())
def test_rows_are_encoded_like_entries(given: list[dict[str, Any]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(given) - 1))
    count = data.draw(st.integers(1, len(given) - start))
    entries = [Entry(row["value"], Kind.BYTES, row["key"], row["headers"] or None, row["time_ms"]) for row in given]

    blob = encoded(messages_of(table_of(given)).slice(start, count), Kind.BYTES, 77)

    expected = decode(encode(entries[start : start + count], now_ms=77))
    assert decode(blob).entries() == expected.entries()
    assert decode(blob).is_plain == expected.is_plain


@given(st.lists(st.none() | st.dictionaries(header_names(300), st.text(max_size=300), max_size=3), min_size=1))
def test_headers_may_be_maps(given: list[dict[str, str] | None]) -> None:
    column = pa.array([None if one is None else list(one.items()) for one in given], pa.map_(pa.string(), pa.string()))
    values = pa.array([b"x"] * len(given))
    packed = packed_headers(column.slice(len(given) // 2), reserved=RESERVED_HEADERS)
    batch = pa.RecordBatch.from_arrays([values.slice(len(given) // 2), packed], ["value", "headers"])

    entries = decode(encoded(batch, Kind.BYTES, 1)).entries()

    assert [entry.headers for entry in entries] == [one or None for one in given[len(given) // 2 :]]


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65_535, 65_536])
def test_headers_of_any_length_can_be_read(size: int) -> None:
    column = pa.array([[("name", "x" * size)]], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_arrays([pa.array([b"v"]), packed_headers(column, reserved="-")], ["value", "headers"])

    (entry,) = decode(encoded(batch, Kind.BYTES, 1)).entries()

    assert entry.headers == {"name": "x" * size}


@pytest.mark.parametrize("count", [15, 16, 65_535, 65_536])
def test_any_number_of_headers_can_be_read(count: int) -> None:
    headers = {str(number): "" for number in range(count)}
    column = pa.array([list(headers.items())], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_arrays([pa.array([b"v"]), packed_headers(column, reserved="-")], ["value", "headers"])

    (entry,) = decode(encoded(batch, Kind.BYTES, 1)).entries()

    assert entry.headers == headers


def test_large_columns_are_as_good_as_others() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a", "ä"], pa.large_string()), pa.array([b"k", None], pa.large_binary())], ["value", "key"]
    )
    kind = kind_of(None, batch.column("value").type)

    entries = decode(encoded(messages_of(batch, kind), kind, 5)).entries()

    assert entries == [Entry(b"a", Kind.TEXT, b"k", None, 5), Entry("ä".encode(), Kind.TEXT, None, None, 5)]


def _rows(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        (_rows(value=pa.array([b"a", None])), Kind.BYTES, "value holds null"),
        (_rows(value=pa.array([b"\xff"])), Kind.TEXT, "UTF-8"),
        (_rows(value=pa.array([b"\xff"])), Kind.JSON, "UTF-8"),
        (_rows(value=pa.array(['{"a": 1}', '{"a": }'])), Kind.JSON, "not JSON"),
        (_rows(value=pa.array([b""])), Kind.JSON, "not JSON"),
        (
            _rows(value=pa.array([b"a"]), headers=pa.array([[{"key": "a", "value": b"\xff"}]], PAIRS)),
            Kind.BYTES,
            "headers .* UTF-8",
        ),
        (
            _rows(value=pa.array([b"a"]), headers=pa.array([[{"key": "a", "value": None}]], PAIRS)),
            Kind.BYTES,
            "headers holds a null",
        ),
        (
            _rows(value=pa.array([b"a"]), headers=pa.array([[{"key": "onebus-x", "value": b""}]], PAIRS)),
            Kind.BYTES,
            "reserved",
        ),
    ],
)
def test_rows_that_no_message_can_be_are_refused(given: pa.RecordBatch, kind: Kind, text: str) -> None:
    with pytest.raises(InvalidColumn, match=text):
        message_columns(given, kind)


def test_a_message_has_at_most_a_mebibyte() -> None:
    limit = 1024 * 1024
    message_columns(_rows(value=pa.array([b"x" * (limit - 1)]), key=pa.array([b"k"])), Kind.BYTES)

    with pytest.raises(PayloadTooLarge, match="1048577 bytes"):
        message_columns(_rows(value=pa.array([b"", b"x" * limit]), key=pa.array([None, b"k"])), Kind.BYTES)


def routes_to(
    topic: str | None, partitions: int, key_partitions: int = 0, turn: int = 0, kind: str = "topic"
) -> Callable[[pa.RecordBatch], dict[Target, list[bytes]]]:
    description = TopicDescription(partitions, key_partitions or partitions)
    routes = Routes(WriteOptions(("",), kind=kind, topic=topic), lambda _: description, turn)

    def route(given: pa.RecordBatch) -> dict[Target, list[bytes]]:
        return {target: its.column("value").to_pylist() for target, its in routes.split(given, messages_of(given))}

    return route


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=60), st.integers(1, 7), st.integers(1, 7))
def test_a_key_has_the_partition_that_it_has_when_it_is_published(keys: list[bytes], total: int, fewer: int) -> None:
    description = TopicDescription(total, min(fewer, total))
    given = _rows(value=pa.array([str(number).encode() for number in range(len(keys))]), key=pa.array(keys))
    expected: dict[Target, list[bytes]] = {}
    for number, key in enumerate(keys):
        expected.setdefault(Target("t", description.partition_of(key)), []).append(str(number).encode())

    assert routes_to("t", total, min(fewer, total))(given) == expected


def test_a_row_that_names_its_partition_goes_there_whatever_its_key() -> None:
    description = TopicDescription(5, 5)
    given = _rows(
        value=pa.array([b"0", b"1", b"2"]),
        key=pa.array([b"a", b"a", None]),
        partition=pa.array([3, None, 4], pa.int32()),
    )

    assert routes_to("t", 5)(given) == {
        Target("t", 3): [b"0"],
        Target("t", description.partition_of(b"a")): [b"1"],
        Target("t", 4): [b"2"],
    }


@pytest.mark.parametrize("partition", [-1, 5])
def test_there_are_no_other_partitions_than_there_are(partition: int) -> None:
    given = _rows(value=pa.array([b"0"]), partition=pa.array([partition]))

    with pytest.raises(InvalidColumn, match="partitions 0 to 4"):
        routes_to("t", 5)(given)


def test_rows_without_key_are_spread_evenly() -> None:
    given = _rows(value=pa.array([str(number).encode() for number in range(3 * SPREAD_ROWS)]))
    route = routes_to("t", 6, turn=5)

    first, second = route(given), route(given)

    assert [target.partition for target in first] == [0, 1, 5]
    assert [target.partition for target in second] == [2, 3, 4]
    assert {len(its) for its in (*first.values(), *second.values())} == {SPREAD_ROWS}


def test_a_column_names_the_topics() -> None:
    given = _rows(value=pa.array([b"0", b"1", b"2"]), topic=pa.array(["b", "a", "b"]), key=pa.array([b"", b"", b""]))

    assert routes_to(None, 1)(given) == {Target("b"): [b"0", b"2"], Target("a"): [b"1"]}
    assert routes_to("c", 1)(given) == {Target("c"): [b"0", b"1", b"2"]}
    assert routes_to(None, 1, kind="queue")(given) == {Target("b"): [b"0", b"2"], Target("a"): [b"1"]}


def test_a_row_without_topic_is_refused() -> None:
    given = _rows(value=pa.array([b"0"]), topic=pa.array([None], pa.string()))

    with pytest.raises(InvalidColumn, match="topic"):
        routes_to(None, 1)(given)
