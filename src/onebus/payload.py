"""Data as bytes and back: JSON, text or bytes, and what comes out is what went in."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from onebus.errors import NotSerializable
from onebus.log.batch import Kind

Data = Any
"""What a message may carry: text, bytes, or anything that can be written as JSON."""

# Every message passes here, and looking up the member of an enumeration takes longer than all the rest.
_BYTES, _TEXT, _JSON = Kind.BYTES, Kind.TEXT, Kind.JSON

_json_encoder = msgspec.json.Encoder()
_json_decoder: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder()


def pack(data: Data) -> tuple[bytes, Kind]:
    """Return data as bytes and what kind they are.

    Raises:
        NotSerializable: it is neither text nor bytes, and cannot be written as JSON.
    """
    if isinstance(data, str):
        try:
            return data.encode(), _TEXT
        except UnicodeEncodeError as error:
            raise NotSerializable(f"The text is not valid Unicode: {error.reason} at {error.start}.") from None
    if isinstance(data, bytes):
        return data, _BYTES
    if isinstance(data, bytearray | memoryview):
        return bytes(data), _BYTES
    return pack_json(data), _JSON


def pack_alike(messages: Sequence[Data]) -> tuple[Sequence[bytes], Kind] | None:
    """Return messages as bytes and what kind all of them are; None if they are not all text, or all bytes.

    It is `pack` for many of them, at a fraction of the cost.
    """
    types = set(map(type, messages))
    if types == {bytes}:
        return messages, _BYTES
    if types == {str}:
        try:
            return list(map(str.encode, messages)), _TEXT
        except UnicodeEncodeError:
            return None
    return None


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
    """Return the data that `pack` was given, or that somebody else has written as JSON."""
    if kind is _JSON:
        try:
            return _json_decoder.decode(value)
        except msgspec.DecodeError:
            # Others may write numbers that no float can hold: these are infinite here, as they are in JavaScript.
            with suppress(ValueError, RecursionError):
                return json.loads(value)
            raise
    return value.decode() if kind is _TEXT else value
