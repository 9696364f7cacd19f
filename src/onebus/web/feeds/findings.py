"""What a client gets at once: messages, and what it has to know besides."""

from collections.abc import Iterable
from functools import cached_property
from typing import Final

from onebus.web.feeds.parcels import Parcel, notice

STATUS: Final = "/__status"
EPOCH: Final = "/__epoch"
GAP: Final = "/__gap"
DENIED: Final = "/__denied"

FRAME_END: Final = b"\r\n|\r\n"
EMPTY_FRAME: Final = b"[]" + FRAME_END


class Findings:
    """Messages, and notices of the door before and after them. Many clients may get the same one, written once."""

    def __init__(self, parcels: list[Parcel] | None = None) -> None:
        self.parcels = parcels or []
        self.before: list[bytes] = []
        self.status: dict[str, int] = {}
        """Where the client should go on in channels in which its last message does not tell it."""

    def __bool__(self) -> bool:
        return bool(self.parcels or self.before or self.status)

    def tell(self, channel: str, data: object) -> None:
        """Add a notice before the messages."""
        self.before.append(notice(channel, data))

    @property
    def pieces(self) -> Iterable[bytes]:
        """All of it in the order in which a client gets it."""
        yield from self.before
        for parcel in self.parcels:
            yield from parcel.pieces
        if self.status:
            yield notice(STATUS, self.status)

    @cached_property
    def count(self) -> int:
        """How many messages there are."""
        return sum(len(parcel.pieces) for parcel in self.parcels)

    @cached_property
    def array(self) -> bytes:
        """All of it as one array."""
        return b"[" + b",".join(self.pieces) + b"]"

    @cached_property
    def chunk(self) -> bytes:
        """The frame as a chunk of HTTP/1.1."""
        return b"%x\r\n%b\r\n" % (len(self.frame), self.frame)

    @cached_property
    def frame(self) -> bytes:
        """All of it as one frame of a stream. JSON has no line ends in it, so nothing else looks like its end."""
        return self.array + FRAME_END
