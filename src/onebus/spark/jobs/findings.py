"""What an audit has found, partition by partition, and in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from onebus.spark.jobs.commits import Source, Spans, count, in_words


@dataclass(frozen=True, slots=True)
class SourceFindings:
    """What was found of one partition, channel, or queue of dead letters, in one life of its log."""

    source: Source
    lake_rows: int = 0
    lake_end: int = 1
    """The first id that the lake is not responsible for."""
    store: tuple[int, int] | None = None
    """The oldest and the newest id of the store; None if the log is not there."""
    missing: Spans = ()
    """What the lake was given, and does not have."""
    missing_rows: int = 0
    """How many of them there are, also where ids do not tell."""
    doubled: Spans = ()
    doubled_rows: int = 0
    """How many rows there are too many."""
    unexpected: Spans = ()
    """What is in the lake, although nobody archived it."""
    holes: Spans = ()
    """What is missing in the middle of what the store keeps."""
    corrupt: Spans = ()
    """What the store keeps in batches that are not what was written."""
    forgotten: Spans = ()
    """What retention took away before it was archived."""
    disordered: int = 0
    """How many blocks of 64 messages begin before the time at which the one before them ended."""

    @property
    def is_clean(self) -> bool:
        return not (self.missing_rows or self.doubled_rows or self.unexpected or self.holes or self.corrupt)

    @property
    def total(self) -> int:
        """How many messages were ever published, as far as the lake and the store know."""
        return max(self.lake_end - 1, self.store[1] if self.store else 0)

    @property
    def only_in_store(self) -> int:
        if self.store is None:
            return 0
        return max(self.store[1] - max(self.store[0], self.lake_end) + 1, 0)

    def problems(self) -> Iterator[str]:
        """Return in words what is wrong, with the ids."""
        if self.missing_rows:
            ids = f": {in_words(self.missing)}" if self.missing else ""
            yield f"{self.source}: {self.missing_rows} missing in the lake{ids}"
        if self.doubled_rows:
            yield f"{self.source}: {self.doubled_rows} too many in the lake: {in_words(self.doubled)}"
        for spans, what in (
            (self.unexpected, "in the lake, but never archived"),
            (self.holes, "missing in the store"),
            (self.corrupt, "damaged in the store"),
        ):
            if spans:
                yield f"{self.source}: {count(spans)} {what}: {in_words(spans)}"


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit has found."""

    lake: str
    sources: Sequence[SourceFindings]
    days: Sequence[tuple[str, str, str, int]] = field(default=())
    """How many messages each object has in the lake: kind, name, day, count."""

    @property
    def is_clean(self) -> bool:
        return all(one.is_clean for one in self.sources)

    @property
    def problems(self) -> list[str]:
        return [problem for one in self.sources for problem in one.problems()]

    @property
    def missing(self) -> int:
        return sum(one.missing_rows + count(one.holes) + count(one.corrupt) for one in self.sources)

    @property
    def doubled(self) -> int:
        return sum(one.doubled_rows for one in self.sources)
