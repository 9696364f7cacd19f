"""What travels between a broker and its publishers and consumers.

publisher to broker, without a receipt     {"topic": "t", "partition": 3, "payload": [...]}, or an array of those
publisher to broker, for a receipt         publisher | number | the same
broker to publisher, stored                numbers, separated by spaces | nothing
broker to publisher, refused               number | {"code": "...", "message": "..."}
broker to plain consumers                  t:3 | [...]
broker to a consumer that acknowledges     inbox | {"topic": "t", "group": "g", "partition": 3, "sequence": 7,
                                           "previous": 5} | [...]
"""

import base64
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw, Struct

from onebus.errors import InvalidArgument
from onebus.log.batch import Kind
from onebus.message import Message
from onebus.objects.topics.batch import TopicBatch
from onebus.objects.topics.stretch import Stretch
from onebus.zmq.echoes import Echoes

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""A publisher that sends more at once is cut off before it fills the broker's memory."""


class Published(Struct):
    """An array of messages for one partition."""

    topic: str
    payload: list[Raw]
    """The JSON of each message, as the publisher wrote it."""
    partition: int | str | None = None
    """None lets the broker choose."""
    partitions: int | None = None
    """How many of them the publisher believes to be there."""

    @property
    def number(self) -> int | None:
        """The partition as a number.

        Raises:
            InvalidArgument: it is none.
        """
        if isinstance(self.partition, str):
            if not (self.partition.isascii() and self.partition.isdigit() and len(self.partition) < 10):
                raise InvalidArgument(f"A partition is a number, and not {self.partition!r}.")
            return int(self.partition)
        return self.partition


class Refusal(Struct):
    """Why something was not stored."""

    code: str
    message: str


class Header(Struct):
    """What comes to the inbox of a consumer that acknowledges."""

    topic: str
    group: str
    partition: int
    sequence: int
    """Grows with every batch of a partition; a batch that is sent again keeps its own."""
    previous: int = 0
    """Of the batch before it that is not acknowledged; 0 if there is none. Whoever has not done that one lost it."""


_published = msgspec.json.Decoder(Published | list[Published])


def read_published(frame: bytes) -> list[Published]:
    """Return the arrays in a frame.

    Raises:
        InvalidArgument: the frame makes no sense.
    """
    try:
        # What is left as it is was checked to be JSON, but not whether its text is UTF-8.
        if not frame.isascii():
            frame.decode()
        found = _published.decode(frame)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"A frame cannot be understood: {error}.") from None
    return found if isinstance(found, list) else [found]


def json_array(batches: Iterable[TopicBatch], echoes: Echoes) -> bytes:
    """Return the data of messages as one JSON array."""
    stretches = [stretch for batch in batches for stretch in batch.stretches]
    arrays = [_array_of(stretch, echoes) for stretch in stretches]
    if len(arrays) == 1:
        return arrays[0]
    return b"[%b]" % b",".join([memoryview(array)[1:-1] for array in arrays])


def _array_of(stretch: Stretch, echoes: Echoes) -> bytes:
    if len(stretch) == stretch.batch.count:
        array = echoes.of(stretch.batch.values.data.obj)
        if array is not None:
            return array
    return b"[%b]" % b",".join(_pieces(stretch))


def _pieces(stretch: Stretch) -> Iterable[bytes]:
    if stretch.batch.is_plain and stretch.batch.kind is Kind.JSON:
        return stretch.payloads()
    return map(_json_of, stretch.messages())


def _json_of(message: Message) -> bytes:
    if message.kind is Kind.JSON:
        return message.raw
    if message.kind is Kind.TEXT:
        return msgspec.json.encode(message.data)
    # Only other doors publish bytes, for which JSON has no word.
    return msgspec.json.encode(base64.b64encode(message.raw).decode())
