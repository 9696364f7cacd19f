"""A batch that comes along with the wake-up, so that a waiting reader need not ask for it.

Within a process it is handed on as it is. To other processes only small ones travel::

    epoch last_id count appended_ms twin_first_id twin_log \\n blob

The twin is ``0`` and nothing for a batch that is in one log only.
"""

from typing import Final

from msgspec import Struct

from onebus.log.stored import StoredBatch, Twin

MAX_NEWS_BYTES: Final = 4000
"""Larger batches are fetched by those who want them: PostgreSQL carries 8000 bytes at most, as text."""


class News(Struct, frozen=True, gc=False):
    """What was just appended to a log, by this process."""

    epoch: str
    batch: StoredBatch

    @property
    def size(self) -> int:
        return len(self.batch.blob)

    def read(self) -> tuple[str, StoredBatch]:
        """Return the epoch of the log, and the batch."""
        return self.epoch, self.batch

    def pack(self) -> bytes | None:
        """Return what travels to other processes, or None if the batch is too large for that."""
        batch = self.batch
        if len(batch.blob) > MAX_NEWS_BYTES:
            return None
        twin = f"{batch.twin.first_id} {batch.twin.log}" if batch.twin else "0 "
        head = f"{self.epoch} {batch.last_id} {batch.count} {batch.appended_ms} {twin}\n"
        return head.encode() + batch.blob


class PackedNews(Struct, frozen=True, gc=False):
    """News from another process, as they travelled: most of those whom they reach need not read them."""

    packed: bytes

    @property
    def size(self) -> int:
        return len(self.packed)

    def read(self) -> tuple[str, StoredBatch]:
        """Return the epoch of the log, and the batch."""
        head, _, blob = self.packed.partition(b"\n")
        epoch, last_id, count, appended_ms, twin_first_id, twin_log = head.decode().split(" ", 5)
        twin = Twin(twin_log, int(twin_first_id)) if twin_log else None
        return epoch, StoredBatch(int(last_id), int(count), blob, int(appended_ms), twin)


AnyNews = News | PackedNews

Grown = dict[str, News | None]
"""The logs that have grown, and by what; None where that is more than one batch, or not known."""


def note(grown: Grown, log: str, news: News | None) -> None:
    """Note that a log has grown. Who is told of one batch must be told of all, so of several nobody is told any."""
    grown[log] = None if log in grown else news
