"""How much of their past feeds keep."""

from typing import Final

from msgspec import Struct

from onebus.errors import InvalidArgument
from onebus.log.retention import Retention
from onebus.stores.base import MEBIBYTE

WEEK_SECONDS: Final = 7 * 24 * 3600.0


class FeedLimits(Struct, frozen=True):
    """What is remembered of each channel, and of all of them together."""

    max_backlog_size: int = 1000
    """Messages of one channel that somebody who comes later can still read."""
    max_global_backlog_size: int = 2000
    """Messages of all channels that `Feeds.global_backlog` returns."""
    max_backlog_age: float = WEEK_SECONDS
    """Seconds after which a message is forgotten."""
    max_tail_messages: int = 100_000
    max_tail_bytes: int = 64 * MEBIBYTE
    """How far a process that follows all channels may fall behind the others without missing anything."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise InvalidArgument(f"{name} must be greater than 0, but is {getattr(self, name)}.")

    def of_channel(self, max_backlog_size: int | None = None, max_backlog_age: float | None = None) -> Retention:
        """Return what the log of a channel keeps, perhaps with other limits than usual."""
        size = self.max_backlog_size if max_backlog_size is None else max_backlog_size
        age = self.max_backlog_age if max_backlog_age is None else max_backlog_age
        return Retention(max_count=size, max_age_seconds=age)

    @property
    def of_all(self) -> Retention:
        """What the log of all channels keeps."""
        return Retention(
            max_count=max(self.max_global_backlog_size, self.max_tail_messages),
            max_bytes=self.max_tail_bytes,
            max_age_seconds=self.max_backlog_age,
        )
