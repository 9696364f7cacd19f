"""What a client asks for: channels, and the id that it has read last in each of them."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from onebus.errors import InvalidArgument
from onebus.web.request import Request

SEQUENCE: Final = "__seq"
EPOCH: Final = "__epoch"
FROM_NOW: Final = None
"""Asks for what is published from now on."""
MAX_ID: Final = 2**62

_LEADING_NUMBER = re.compile(r"\s*([+-]?\d{1,30})")
_form_limit = 10_000


class Wishes(Struct, frozen=True):
    """What one request asks for."""

    channels: Mapping[str, int | None]
    sequence: int = 0
    """The number of this request among those of its client."""
    epoch: str | None = None
    """The life of all feeds that the client knows; None if it does not want to hear of that."""


async def wishes_of(request: Request, *, max_channels: int) -> Wishes:
    """Return what a poll asks for.

    Raises:
        InvalidArgument: the body cannot be understood, or asks for too much.
    """
    chosen = request.scope.get("message_bus.channels")
    if chosen is not None:
        # Something in front of the door has decided for the client.
        wishes = wishes_from({**chosen, SEQUENCE: request.scope.get("message_bus.seq", 0)})
    else:
        wishes = wishes_from(_fields(await request.body(), request.headers.get("content-type", "")))
    check_count(len(wishes.channels), max_channels)
    return wishes


def _fields(body: bytes, content_type: str) -> Mapping[str, Any]:
    if "application/json" in content_type:
        return read_json(body) if body else {}
    return read_form(body.decode("utf-8", "replace"))


def wishes_from(fields: Mapping[str, Any]) -> Wishes:
    """Return what some fields ask for, each a channel or a word of the protocol."""
    epoch = fields.get(EPOCH)
    channels = {name: _id(value) for name, value in fields.items() if name not in (SEQUENCE, EPOCH)}
    return Wishes(channels, _id(fields.get(SEQUENCE)) or 0, None if epoch is None else str(epoch))


def check_count(count: int, most: int) -> None:
    """Raise `InvalidArgument` if a client wants to follow too many channels."""
    if count > most:
        raise InvalidArgument(f"One client may follow {most} channels, and not {count}.")


def read_json(body: bytes | str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        InvalidArgument: it is none.
    """
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidArgument(f"That is not a JSON object: {error}.") from None


def read_form(text: str) -> dict[str, str]:
    """Return the fields of a form.

    Raises:
        InvalidArgument: there are too many of them.
    """
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_form_limit))
    except ValueError as error:
        raise InvalidArgument(f"That form cannot be read: {error}.") from None


def _id(value: Any) -> int | None:
    """Return an id as clients write it: nothing asks for what comes from now on, and text without a number is 0."""
    if value is None or value == "":
        return FROM_NOW
    if isinstance(value, str):
        number = _LEADING_NUMBER.match(value)
        value = int(number[1]) if number else 0
    if not isinstance(value, int | float) or value != value:
        return 0
    return int(max(-MAX_ID, min(value, MAX_ID)))
