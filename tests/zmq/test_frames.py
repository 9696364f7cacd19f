"""What the broker takes from publishers can be read again by everybody."""

import json
from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebus.errors import InvalidArgument
from onebus.log.batch import Kind, decode, encode_values
from onebus.objects.topics.batch import TopicBatch
from onebus.objects.topics.stretch import Stretch
from onebus.payload import unpack
from onebus.zmq.echoes import Echoes
from onebus.zmq.frames import json_array, read_published

JSON_BYTES = st.sampled_from(
    [bytes([byte]) for byte in b'"\\u[]{},:0123456789eE.+- tnrfalsx'] + [b"\xff", "é".encode()]
)


def frame_with(payload: bytes) -> bytes:
    return b'{"topic":"t","payload":[%b]}' % payload


@given(st.lists(JSON_BYTES, max_size=12).map(b"".join))
def test_what_is_accepted_is_json_and_can_be_read(payload: bytes) -> None:
    try:
        (published,) = read_published(frame_with(payload))
    except InvalidArgument:
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(frame_with(payload))
    else:
        assert [unpack(bytes(raw), Kind.JSON) for raw in published.payload] == json.loads(b"[%b]" % payload)


def test_a_number_that_no_float_can_hold_is_infinite() -> None:
    (published,) = read_published(frame_with(b"1e999,-1e999,[1e999]"))

    assert [unpack(bytes(raw), Kind.JSON) for raw in published.payload] == [inf, -inf, [inf]]


@pytest.mark.parametrize("payload", [b'"\xff"', b'{"\xc3":1}', b'"\xed\xa0\x80"'])
def test_text_that_is_not_utf_8_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidArgument):
        read_published(frame_with(payload))


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
def test_an_abyss_of_brackets_is_refused(depth: int) -> None:
    with pytest.raises(InvalidArgument):
        read_published(frame_with(b"[" * depth + b"]" * depth))


class _NoReading:
    topic, number, fence = "t", 0, 1


def batch_of(*blobs: bytes) -> TopicBatch:
    stretches = [Stretch(batch, 1, 0, batch.count) for batch in map(decode, blobs)]
    return TopicBatch(_NoReading(), stretches, "epoch")  # type: ignore[arg-type]


def test_batches_go_out_as_one_array_whether_their_text_is_remembered_or_not() -> None:
    blobs = [encode_values(values, kind=Kind.JSON, now_ms=1) for values in ([b"1", b'"a"'], [b"{}"], [b"[2]", b"3"])]
    echoes = Echoes()
    echoes.keep(blobs[1], b"[{}]")

    assert json_array([batch_of(blobs[1])], echoes) == b"[{}]"
    assert json_array([batch_of(*blobs[:2]), batch_of(blobs[2])], echoes) == b'[1,"a",{},[2],3]'
