"""Messages as the lines that people and programs read."""

from base64 import b64encode
from typing import Any

import msgspec

from onebus.log.batch import Kind
from onebus.message import Message
from onebus.objects.deadletters import DeadLetter
from onebus.objects.feeds.message import FeedMessage
from onebus.payload import pack

_encode = msgspec.json.Encoder().encode


def message_line(message: Message, *, as_json: bool) -> bytes:
    """Return a message as one line: its data as it is, or all that is known of it as JSON."""
    if not as_json:
        return message.raw
    return _encode(
        {
            "id": message.id,
            **_data(message.raw, message.kind),
            "timestamp": message.timestamp,
            "attempts": message.attempts,
            "key": None if message.key is None else _text(message.key),
            "headers": message.headers,
        }
    )


def data_line(data: Any, *, as_json: bool) -> bytes:
    """Return data as one line: as it is, or in a JSON object."""
    value, kind = pack(data)
    return _encode(_data(value, kind)) if as_json else value


def feed_line(message: FeedMessage, *, as_json: bool) -> bytes:
    """Return a message of a channel as one line: text as it is, else JSON, or all that is known of it."""
    data = message.data
    if not as_json:
        return data.encode() if isinstance(data, str) else message.value
    return _encode(
        {
            "channel": message.channel,
            "message_id": message.message_id,
            "global_id": message.global_id,
            "data": data,
            "site_id": message.site_id,
            "user_ids": message.user_ids,
            "group_ids": message.group_ids,
            "client_ids": message.client_ids,
        }
    )


def letter_line(letter: DeadLetter, *, as_json: bool) -> bytes:
    """Return a dead letter as one line: id, attempts, reason and data, or a JSON object."""
    value, kind = pack(letter.data)
    if not as_json:
        return b"%d\t%d\t%s\t%s" % (letter.message_id, letter.attempts, letter.reason.encode(), value)
    return _encode(
        {
            "id": letter.message_id,
            **_data(value, kind),
            "timestamp": letter.timestamp,
            "attempts": letter.attempts,
            "reason": letter.reason,
        }
    )


def object_line(value: Any) -> bytes:
    """Return anything as JSON in one line."""
    return _encode(value)


def _data(value: bytes, kind: Kind) -> dict[str, Any]:
    if kind is Kind.JSON:
        return {"data": msgspec.Raw(value)}
    try:
        return {"data": value.decode()}
    except UnicodeDecodeError:
        return {"data": b64encode(value).decode(), "encoding": "base64"}


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode()
