import zlib
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebus.errors import CorruptBatch, PayloadTooLarge
from onebus.log import batch as batch_module
from onebus.log.batch import BinaryColumn, Entry, Kind, count_of, decode, encode, encode_columns, encode_values

entries = st.builds(
    Entry,
    value=st.binary(max_size=200),
    kind=st.sampled_from(Kind),
    key=st.none() | st.binary(max_size=20),
    headers=st.none() | st.dictionaries(st.text(max_size=8), st.text(max_size=8), min_size=1, max_size=3),
    time_ms=st.none() | st.integers(-(2**62), 2**62),
)
batches = st.lists(entries, min_size=1, max_size=40)


@given(batches, st.booleans())
def test_what_is_encoded_comes_back_as_it_was(messages: list[Entry], compress: bool) -> None:
    blob = encode(messages, now_ms=1234, compress=compress)

    expected = [
        Entry(
            message.value,
            message.kind,
            message.key,
            message.headers,
            1234 if message.time_ms is None else message.time_ms,
        )
        for message in messages
    ]
    assert decode(blob).entries() == expected
    assert decode(blob).payloads() == [message.value for message in messages]
    assert count_of(blob) == len(messages)


@given(st.lists(st.binary(max_size=100), min_size=1), st.sampled_from(Kind), st.booleans())
def test_plain_values_are_encoded_like_entries(values: list[bytes], kind: Kind, compress: bool) -> None:
    blob = encode_values(values, kind=kind, now_ms=5, compress=compress)

    assert blob == encode([Entry(value, kind) for value in values], now_ms=5, compress=compress)


@given(batches, st.booleans())
def test_columns_are_encoded_like_entries(messages: list[Entry], compress: bool) -> None:
    blob = encode(messages, now_ms=5, compress=compress)

    assert encode_columns(decode(blob), compress=compress) == blob


def test_columns_without_validity_have_no_gaps() -> None:
    blob = encode([Entry(b"a", key=b"k"), Entry(b"b", key=b"l")], now_ms=5)
    columns = decode(blob)
    assert columns.keys is not None

    again = encode_columns(msgspec.structs.replace(columns, keys=columns.keys._replace(validity=None)))

    assert again == blob


@given(batches, st.booleans(), st.data())
def test_a_flipped_bit_anywhere_is_noticed(messages: list[Entry], compress: bool, data: st.DataObject) -> None:
    blob = bytearray(encode(messages, now_ms=0, compress=compress))
    position = data.draw(st.integers(0, len(blob) * 8 - 1))
    blob[position // 8] ^= 1 << position % 8

    with pytest.raises(CorruptBatch):
        decode(bytes(blob)).entries()


@given(batches, st.booleans(), st.data())
def test_a_cut_or_longer_blob_is_noticed(messages: list[Entry], compress: bool, data: st.DataObject) -> None:
    blob = encode(messages, now_ms=0, compress=compress)
    cut = data.draw(st.integers(0, len(blob) - 1))

    for wrong in (blob[:cut], blob + b"\0"):
        with pytest.raises(CorruptBatch):
            decode(wrong).entries()


@given(st.binary(max_size=300))
def test_random_bytes_are_not_a_batch(noise: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode(noise)


def with_valid_checksum(blob: bytes) -> bytes:
    head, body = blob[:28], blob[32:]
    return head + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "little") + body


@given(batches, st.booleans(), st.data())
def test_forged_bytes_with_a_valid_checksum_raise_corrupt_batch_or_decode(
    messages: list[Entry], compress: bool, data: st.DataObject
) -> None:
    blob = bytearray(encode(messages, now_ms=0, compress=compress))
    for _ in range(data.draw(st.integers(1, 8))):
        blob[data.draw(st.integers(2, len(blob) - 1))] = data.draw(st.integers(0, 255))

    try:
        decoded = decode(with_valid_checksum(bytes(blob)))
        assert len(decoded.entries()) == decoded.count
    except CorruptBatch:
        pass


@pytest.mark.parametrize("count", [0, 2**32 - 1, 10_000_000])
def test_an_absurd_count_is_refused_before_anything_is_allocated(count: int) -> None:
    blob = bytearray(encode([Entry(b"x")], now_ms=0))
    blob[4:8] = count.to_bytes(4, "little")

    with pytest.raises(CorruptBatch):
        decode(with_valid_checksum(bytes(blob)))


def test_a_compressed_body_larger_than_it_claims_is_refused() -> None:
    blob = bytearray(encode([Entry(bytes(10_000))], now_ms=0, compress=True))
    blob[8:12] = (64).to_bytes(4, "little")

    with pytest.raises(CorruptBatch):
        decode(with_valid_checksum(bytes(blob)))


def test_an_unknown_version_names_the_likely_reason() -> None:
    blob = bytearray(encode([Entry(b"x")], now_ms=0))
    blob[2] = 9

    with pytest.raises(CorruptBatch, match="newer onebus"):
        decode(bytes(blob))


def test_a_plain_batch_costs_four_bytes_per_message_and_a_header() -> None:
    blob = encode([Entry(b"x" * 100)] * 1000, now_ms=0)

    assert len(blob) <= 1000 * 104 + 48


def test_compression_is_used_only_where_it_helps() -> None:
    text = [Entry(b"the same text again and again " * 10)] * 50

    assert len(encode(text, now_ms=0, compress=True)) < len(encode(text, now_ms=0)) / 10
    assert encode([Entry(b"x")], now_ms=0, compress=True) == encode([Entry(b"x")], now_ms=0)


def test_a_batch_that_no_reader_could_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MAX_BODY_BYTES", 1000)

    with pytest.raises(PayloadTooLarge):
        encode([Entry(bytes(501))], now_ms=0)


@given(batches, st.booleans())
def test_the_columns_are_arrow_buffers(messages: list[Entry], compress: bool) -> None:
    decoded = decode(encode(messages, now_ms=7, compress=compress))

    def arrow(column: BinaryColumn) -> pa.Array:
        buffers = [None if part is None else pa.py_buffer(part) for part in column]
        array = pa.Array.from_buffers(pa.binary(), decoded.count, buffers)
        array.validate(full=True)
        return array

    assert arrow(decoded.values).to_pylist() == [message.value for message in messages]
    if decoded.keys is not None:
        assert arrow(decoded.keys).to_pylist() == [message.key for message in messages]
    if decoded.times is not None:
        times = pa.Array.from_buffers(pa.int64(), decoded.count, [None, pa.py_buffer(decoded.times)])
        assert times.to_pylist() == [7 if message.time_ms is None else message.time_ms for message in messages]


def test_decoding_copies_nothing() -> None:
    blob = encode([Entry(b"hello", key=b"k")], now_ms=0)
    decoded = decode(blob)

    def owner(view: memoryview) -> object:
        return view.obj

    parts: list[Callable[[], memoryview]] = [lambda: decoded.values.data, lambda: decoded.values.offsets]
    assert all(owner(part()) is blob for part in parts)
