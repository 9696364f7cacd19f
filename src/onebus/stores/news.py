"""A small batch that travels along with the wake-up, so that a waiting reader need not ask for it.

    epoch last_id count appended_ms twin_first_id twin_log \\n blob

The twin is ``0`` and nothing for a batch that is in one log only.
"""

from typing import Final, Self

from msgspec import Struct

from onebus.log.stored import StoredBatch, Twin

MAX_NEWS_BYTES: Final = 4000
"""Larger batches are fetched by those who want them: PostgreSQL carries 8000 bytes at most, as text."""


class News(Struct, frozen=True, gc=False):
    """What was just appended to a log, as it travels: most of those whom it reaches need not read it."""

    packed: bytes

    @classmethod
    def of(cls, epoch: str, batch: StoredBatch) -> Self | None:
        """Return the news of a batch, or None if it is too large to travel."""
        if len(batch.blob) > MAX_NEWS_BYTES:
            return None
        twin = f"{batch.twin.first_id} {batch.twin.log}" if batch.twin else "0 "
        head = f"{epoch} {batch.last_id} {batch.count} {batch.appended_ms} {twin}\n"
        return cls(head.encode() + batch.blob)

    def read(self) -> tuple[str, StoredBatch]:
        """Return the epoch of the log, and the batch."""
        head, _, blob = self.packed.partition(b"\n")
        epoch, last_id, count, appended_ms, twin_first_id, twin_log = head.decode().split(" ", 5)
        twin = Twin(twin_log, int(twin_first_id)) if twin_log else None
        return epoch, StoredBatch(int(last_id), int(count), blob, int(appended_ms), twin)
