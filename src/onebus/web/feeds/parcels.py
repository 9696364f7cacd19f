"""Messages as they go over the wire, written once for all clients that get the same ones."""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from onebus.objects.feeds.message import EVERYBODY, FeedMessage
from onebus.web.feeds.visitor import Visitor

FRAME_END = b"\r\n|\r\n"
EMPTY_FRAME = b"[]" + FRAME_END


class Parcel:
    """Some messages, written as JSON."""

    __slots__ = ("_array", "_frame", "messages", "pieces")

    def __init__(self, messages: Sequence[FeedMessage], pieces: Sequence[bytes]) -> None:
        self.messages = messages
        self.pieces = pieces
        """Each message by itself."""
        self._array: bytes | None = None
        self._frame: bytes | None = None

    @property
    def array(self) -> bytes:
        """All of them as one array."""
        if self._array is None:
            self._array = b"[" + b",".join(self.pieces) + b"]"
        return self._array

    @property
    def frame(self) -> bytes:
        """All of them as one frame of a stream. JSON has no line ends in it, so nothing else looks like its end."""
        if self._frame is None:
            self._frame = self.array + FRAME_END
        return self._frame


class Delivery:
    """The messages of one channel that arrived together, for any number of clients."""

    __slots__ = ("_is_open", "_messages", "_parcels", "_pieces", "first_id", "last_id", "size")

    def __init__(self, messages: Sequence[FeedMessage]) -> None:
        self._messages = messages
        self._is_open = all(message.audience is EVERYBODY for message in messages)
        self._pieces: list[bytes] | None = None
        self._parcels: dict[tuple[int, ...] | None, Parcel] = {}
        self.first_id = messages[0].message_id
        self.last_id = messages[-1].message_id
        self.size = sum(len(message.value) for message in messages)

    def parcel(self, visitor: Visitor, after: int) -> Parcel | None:
        """Return those messages that follow an id and that a visitor may see."""
        if self._is_open and after < self.first_id and visitor.sees_all(self._messages[0].channel):
            return self._parcel(None)
        seen = enumerate(self._messages)
        chosen = tuple(index for index, one in seen if one.message_id > after and visitor.sees(one))
        return self._parcel(chosen) if chosen else None

    def _parcel(self, chosen: tuple[int, ...] | None) -> Parcel:
        parcel = self._parcels.get(chosen)
        if parcel is None:
            if self._pieces is None:
                self._pieces = [piece(message) for message in self._messages]
            if chosen is None:
                parcel = Parcel(self._messages, self._pieces)
            else:
                parcel = Parcel([self._messages[i] for i in chosen], [self._pieces[i] for i in chosen])
            self._parcels[chosen] = parcel
        return parcel


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
