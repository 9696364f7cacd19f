"""A batch that has its place in a log."""

from msgspec import Struct


class Origin(Struct, frozen=True, gc=False):
    """Where a mirrored batch comes from: the log it was appended to, and its first id there."""

    log: str
    first_id: int


class StoredBatch(Struct, frozen=True, gc=False):
    """A batch with its place in a log."""

    last_id: int
    count: int
    blob: bytes
    appended_ms: int
    origin: Origin | None = None

    @property
    def first_id(self) -> int:
        return self.last_id - self.count + 1
