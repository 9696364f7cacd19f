"""What a client gets at once: what it missed, and what it has to know."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from onebus.web.feeds.parcels import FRAME_END, Parcel, notice

STATUS: Final = "/__status"
EPOCH: Final = "/__epoch"
GAP: Final = "/__gap"
DENIED: Final = "/__denied"


@dataclass(slots=True)
class Findings:
    """Messages, and notices of the door before and after them."""

    parcels: list[Parcel] = field(default_factory=list)
    before: list[bytes] = field(default_factory=list)
    status: dict[str, int] = field(default_factory=dict)
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

    @property
    def count(self) -> int:
        """How many messages there are."""
        return sum(len(parcel.pieces) for parcel in self.parcels)

    @property
    def array(self) -> bytes:
        if len(self.parcels) == 1 and not self.before and not self.status:
            return self.parcels[0].array
        return b"[" + b",".join(self.pieces) + b"]"

    @property
    def frame(self) -> bytes:
        if len(self.parcels) == 1 and not self.before and not self.status:
            return self.parcels[0].frame
        return self.array + FRAME_END
