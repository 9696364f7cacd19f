"""A small batch that travels along with the wake-up, so that a waiting reader need not ask for it.

    epoch last_id count appended_ms origin_first_id origin_log \\n blob

The origin is ``0`` and nothing for a batch that is no mirror.
"""

from dataclasses import dataclass
from typing import Final, Self

from onebus.log.stored import Origin, StoredBatch

MAX_NEWS_BYTES: Final = 4000
"""Larger batches are fetched by those who want them: PostgreSQL carries 8000 bytes at most, as text."""


@dataclass(frozen=True, slots=True)
class News:
    """What was just appended to a log."""

    epoch: str
    batch: StoredBatch

    @classmethod
    def of(cls, epoch: str, batch: StoredBatch) -> Self | None:
        """Return the news of a batch, or None if it is too large to travel."""
        return cls(epoch, batch) if len(batch.blob) <= MAX_NEWS_BYTES else None

    def pack(self) -> bytes:
        batch, origin = self.batch, self.batch.origin
        source = f"{origin.first_id} {origin.log}" if origin else "0 "
        return f"{self.epoch} {batch.last_id} {batch.count} {batch.appended_ms} {source}\n".encode() + batch.blob

    @classmethod
    def unpack(cls, packed: bytes) -> Self | None:
        """Return the news, or None for a wake-up that brings none."""
        head, newline, blob = packed.partition(b"\n")
        if not newline:
            return None
        epoch, last_id, count, appended_ms, origin_first_id, origin_log = head.decode().split(" ", 5)
        origin = Origin(origin_log, int(origin_first_id)) if origin_log else None
        return cls(epoch, StoredBatch(int(last_id), int(count), blob, int(appended_ms), origin))
