"""Data as bytes and back: JSON, text or bytes, and what comes out is what went in."""

from typing import Any

import msgspec

from onebus.errors import NotSerializable
from onebus.log.batch import Kind

Data = Any
"""What a message may carry: text, bytes, or anything that can be written as JSON."""

_json_encoder = msgspec.json.Encoder()
_json_decoder: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder()


def pack(data: Data) -> tuple[bytes, Kind]:
    """Return data as bytes and what kind they are.

    Raises:
        NotSerializable: it is neither text nor bytes, and cannot be written as JSON.
    """
    if isinstance(data, str):
        return _text(data), Kind.TEXT
    if isinstance(data, bytes):
        return data, Kind.BYTES
    if isinstance(data, bytearray | memoryview):
        return bytes(data), Kind.BYTES
    return pack_json(data), Kind.JSON


def pack_json(data: Data) -> bytes:
    """Return data as JSON.

    Raises:
        NotSerializable: JSON has no words for it.
    """
    try:
        return _json_encoder.encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise NotSerializable(f"{type(data).__name__} cannot be written as JSON: {error}.") from error


def unpack(value: bytes, kind: Kind) -> Data:
    """Return the data that `pack` was given."""
    if kind is Kind.JSON:
        return _json_decoder.decode(value)
    return value.decode() if kind is Kind.TEXT else value


def _text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise NotSerializable(f"The text is not valid Unicode: {error.reason} at {error.start}.") from None
