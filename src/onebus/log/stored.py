"""A batch that has its place in a log."""

from msgspec import Struct


class Twin(Struct, frozen=True, gc=False):
    """Where else a batch is that was appended to two logs: the other one, and its first id there."""

    log: str
    first_id: int


class StoredBatch(Struct, frozen=True, gc=False):
    """A batch with its place in a log."""

    last_id: int
    count: int
    blob: bytes
    appended_ms: int
    twin: Twin | None = None

    @property
    def first_id(self) -> int:
        return self.last_id - self.count + 1
