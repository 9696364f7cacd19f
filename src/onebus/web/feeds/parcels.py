"""Messages as they go over the wire."""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from onebus.objects.feeds.message import FeedMessage


class Parcel:
    """Some messages, each written as JSON."""

    __slots__ = ("messages", "pieces")

    def __init__(self, messages: Sequence[FeedMessage], pieces: Sequence[bytes]) -> None:
        self.messages = messages
        self.pieces = pieces


def parcel_of(messages: Sequence[FeedMessage]) -> Parcel:
    return Parcel(messages, [piece(message) for message in messages])


def piece(message: FeedMessage) -> bytes:
    """Return a message as a JSON object: whom it is for and its site are nobody's business."""
    head = f'{{"global_id":{message.global_id},"message_id":{message.message_id},"channel":'
    return b"%b%b%b%b}" % (head.encode(), _quoted(message.channel), b',"data":', message.value)


def notice(channel: str, data: object) -> bytes:
    """Return a message of the door itself."""
    head = b'{"global_id":-1,"message_id":-1,"channel":'
    return b"%b%b%b%b}" % (head, _quoted(channel), b',"data":', msgspec.json.encode(data))


@lru_cache(maxsize=10_000)
def _quoted(channel: str) -> bytes:
    return msgspec.json.encode(channel)
