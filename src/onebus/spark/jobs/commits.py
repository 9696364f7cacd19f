"""What a lake holds: the arithmetic of ids, and the record of a commit. Nothing here touches a file.

A commit is one JSON file. It says what the lake holds after it, so that the newest one is all that anybody needs.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

Spans = tuple[tuple[int, int], ...]
"""First and last ids, in order, neighbours as one."""


class Source(NamedTuple):
    """A partition of a topic, a channel, or the dead letters of a queue, in one life of its log."""

    kind: str
    topic: str
    partition: int
    epoch: str

    def __str__(self) -> str:
        return f"{self.kind} {self.topic}:{self.partition}"


class Holding(Struct, frozen=True):
    """What the lake holds of a source, and what it never got."""

    kind: str
    topic: str
    partition: int
    epoch: str
    end: int = 1
    """The first id that was not looked at yet: up to here the lake is complete, and from here on the store is."""
    rows: int = 0
    """How many messages of it are in the lake."""
    forgotten: Spans = ()
    """What the store had forgotten before it was archived."""
    has_gaps: bool = False
    """Whether ids may be missing because their messages were done, or were replaced by newer ones."""

    @property
    def source(self) -> Source:
        return Source(self.kind, self.topic, self.partition, self.epoch)

    @property
    def held(self) -> Spans:
        """Which ids are in the lake, if it has no gaps."""
        return without(((1, self.end - 1),) if self.end > 1 else (), self.forgotten)


class Move(Struct, frozen=True):
    """A file that becomes visible with a commit."""

    staged: str
    path: str


class Commit(Struct, frozen=True):
    """What a lake is after one batch, or after young files have become large ones."""

    number: int
    holdings: tuple[Holding, ...] = ()
    tail: tuple[str, ...] = ()
    """Folders with young files, which are not visible to plain readers yet."""
    tail_rows: int = 0
    tail_ms: int = 0
    """When the oldest of them was written."""
    moves: tuple[Move, ...] = ()
    """What becomes visible with this commit. It is moved after the commit, and before the next one."""
    time_ms: int = 0

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @classmethod
    def decode(cls, data: bytes) -> "Commit":
        return msgspec.json.decode(data, type=cls)

    def holding(self, source: Source) -> Holding | None:
        return next((one for one in self.holdings if one.source == source), None)

    def with_holdings(self, changed: Iterable[Holding]) -> tuple[Holding, ...]:
        """Return what is held, some of it changed."""
        found = {one.source: one for one in self.holdings} | {one.source: one for one in changed}
        return tuple(found[source] for source in sorted(found))


def joined(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return spans in order, those that touch or overlap as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


def without(spans: Iterable[tuple[int, int]], other: Iterable[tuple[int, int]]) -> Spans:
    """Return the ids of some spans that are in none of others."""
    left = list(joined(spans))
    for first, last in joined(other):
        cut: list[tuple[int, int]] = []
        for start, end in left:
            if end < first or start > last:
                cut.append((start, end))
                continue
            if start < first:
                cut.append((start, first - 1))
            if end > last:
                cut.append((last + 1, end))
        left = cut
    return tuple(left)


def count(spans: Iterable[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in spans)


def in_words(spans: Sequence[tuple[int, int]], *, most: int = 20) -> str:
    """Return spans for people: ``1-5, 9``."""
    shown = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans[:most])
    return shown if len(spans) <= most else f"{shown} and {len(spans) - most} more"
