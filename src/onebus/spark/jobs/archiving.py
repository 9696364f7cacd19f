"""Topics, feeds and dead letters to a lake of Parquet files, each message once.

A batch is: see what is new, write it where nobody looks, read back that it is all there, add a commit to the lake. Only
the commit counts, and it says how far the lake has come. So whoever dies at any point leaves nothing that the next
one has to believe; it begins where the newest commit ends.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from onebus.errors import InvalidArgument, LakeDamaged, MessagesLost
from onebus.spark.jobs.batches import Ends, Part, ends_of, planned, read_parts
from onebus.spark.jobs.commits import Source
from onebus.spark.jobs.lake import SCHEMA, TAIL, Lake, write
from onebus.spark.jobs.running import Stop
from onebus.spark.jobs.sealing import seal
from onebus.spark.jobs.store import JobStore, wanted_of
from onebus.spark.jobs.trimming import trim
from onebus.spark.logs import Wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_AT_ONCE: Final = 1_000_000
SEAL_ROWS: Final = 500_000
"""As soon as the tail has so many messages, it becomes visible."""
SEAL_SECONDS: Final = 600.0
"""... or when it has waited for so long."""
EVERY_SECONDS: Final = 5.0
ATTEMPTS: Final = 5
SMALL_ROWS: Final = 50_000
"""A batch that one task writes."""

_log = logging.getLogger("onebus.spark")


class Batch(NamedTuple):
    """What a batch has done."""

    number: int
    rows: int
    forgotten: int
    trimmed: int


class Archived(NamedTuple):
    """What a run has done."""

    batches: int
    rows: int
    forgotten: int
    """How many messages the store had forgotten before they were archived."""
    trimmed: int
    """How many messages the store was told to forget."""


def archive(
    spark: "SparkSession",
    lake: str,
    *,
    url: str | None = None,
    topics: Sequence[str] = (),
    feeds: Sequence[str] = (),
    dead_letters: Sequence[str] = (),
    once: bool = True,
    then_trim: bool = False,
    keep_for: Sequence[str] = (),
    even_unread: bool = False,
    rows_at_once: int = ROWS_AT_ONCE,
    seal_rows: int = SEAL_ROWS,
    seal_seconds: float = SEAL_SECONDS,
    every_seconds: float = EVERY_SECONDS,
    stop: Stop | None = None,
    on_batch: Callable[[Batch], object] | None = None,
) -> Archived:
    """Write what is new in the store to a lake, and return what was done.

    In a name of a topic, a channel, or a queue whose dead letters are wanted, ``*`` stands for any letters. With
    ``once`` this ends when all is in the lake that was there at the beginning; else it looks every ``every_seconds``,
    until `stop` is set.

    Small batches are kept in young files, which become visible to plain readers when there are ``seal_rows`` of
    them, after ``seal_seconds``, and at the end of a run.

    With ``then_trim`` the partitions of topics forget what is in the lake, as far as the groups ``keep_for`` have read
    it, or, with ``even_unread``, all of it. Feeds and dead letters forget nothing.

    Raises:
        InvalidArgument: nothing is to be archived, or nobody says what may be forgotten.
        TopicMissing: there is no such topic.
        LakeBusy: somebody else writes to the lake.
        LakeDamaged: what was written is not what was read.
    """
    wanted = wanted_of(topics, feeds, dead_letters)
    if not wanted:
        raise InvalidArgument("Say what to archive: topics, feeds, or the queues of dead letters.")
    if then_trim == (not keep_for and not even_unread) or (keep_for and even_unread):
        raise InvalidArgument(
            "To let the store forget what is in the lake, name the groups for which it keeps what they have not read "
            "(keep_for), or say that it keeps nothing for anybody (even_unread)."
        )
    stop = stop or Stop()
    archiver = _Archiver(spark, Lake(spark, lake), JobStore(spark, url), wanted, rows_at_once, seal_rows)
    until = archiver.ends() if once else None
    done: list[Batch] = []
    while True:
        step = archiver.step(until)
        batch = step or Batch(archiver.newest.number, 0, 0, 0)
        if then_trim:
            batch = batch._replace(trimmed=archiver.trim(keep_for))
        if any(batch[1:]):
            done.append(batch)
            if on_batch is not None:
                on_batch(batch)
        # A batch without rows is no end: ids may be gone, and others come after them.
        if stop.is_set or (step is None and (once or stop.wait(every_seconds))):
            break
        archiver.seal(seal_rows, seal_seconds)
    archiver.seal(1, 0)
    return Archived(
        sum(1 for batch in done if batch.rows),
        sum(batch.rows for batch in done),
        sum(batch.forgotten for batch in done),
        sum(batch.trimmed for batch in done),
    )


class _Archiver:
    """Adds batches to a lake, of which it knows the newest commit."""

    def __init__(
        self, spark: "SparkSession", lake: Lake, store: JobStore, wanted: Sequence[Wanted], most: int, large: int
    ) -> None:
        self.lake = lake
        self.store = store
        self.newest = lake.recover()
        self._spark = spark
        self._wanted = wanted
        self._most = most
        self._large = large

    def ends(self) -> Ends:
        return ends_of(self.store.look(self._wanted))

    def step(self, until: Ends | None) -> Batch | None:
        """Add what is new, up to the size of a batch and no further than said; None if nothing is."""
        for attempt in range(1, ATTEMPTS + 1):
            parts = planned(self.newest, self.store.look(self._wanted), until=until, most=self._most)
            if not parts:
                break
            try:
                rows = self._write(parts)
            except Exception as error:
                # What retention takes away between two looks is known to be forgotten at the next one.
                is_lost = isinstance(error, MessagesLost) or MessagesLost.__name__ in str(error)
                if not is_lost or attempt == ATTEMPTS:
                    raise
                continue
            forgotten = [part for part in parts if part.forgotten]
            for part in forgotten:
                _log.warning(
                    "%d to %d of %s were forgotten before they were archived.", *part.forgotten or (), part.source
                )
            lost = sum(last - first + 1 for first, last in (part.forgotten for part in forgotten if part.forgotten))
            return Batch(self.newest.number, rows, lost, 0)
        return None

    def trim(self, groups: Sequence[str]) -> int:
        """Let the store forget what is in the lake and was read by some groups."""
        return trim(self.store, self.lake, self.newest, self.store.look(self._wanted), groups)

    def seal(self, rows: int, seconds: float) -> None:
        """Make the tail visible if it is so large or so old."""
        if self.newest.tail:
            age = time.time() - self.newest.tail_ms / 1000
            if self.newest.tail_rows >= rows or age >= seconds:
                self.newest = seal(self.lake, self.newest)

    def _write(self, parts: Sequence[Part]) -> int:
        number = self.newest.number + 1
        size = sum(part.size for part in parts)
        frame = read_parts(self._spark, self.store.options, parts)
        frame = frame.coalesce(1 if size <= SMALL_ROWS else self._spark.sparkContext.defaultParallelism)
        name = f"{number:012}-{uuid4().hex}"
        commit = replace(self.newest, number=number, moves=(), time_ms=_now_ms())
        if size >= self._large:
            commit = replace(commit, moves=self.lake.stage(frame, number, name))
            staged = [self.lake.files.url(move.staged) for move in commit.moves]
        else:
            write(frame, self.lake.files.url(f"{TAIL}/{name}"), by_folder=False)
            staged = [self.lake.files.url(f"{TAIL}/{name}")]
        rows = _checked(self._spark, staged, parts)
        if size < self._large:
            commit = replace(
                commit,
                tail=(*commit.tail, f"{TAIL}/{name}"),
                tail_rows=commit.tail_rows + sum(rows.values()),
                tail_ms=commit.tail_ms if commit.tail else commit.time_ms,
            )
        self._check_lives(parts)
        changed = [part.after(commit.holding(part.source), rows.get(part.source, 0)) for part in parts]
        commit = replace(commit, holdings=commit.with_holdings(changed))
        self.lake.commit(commit)
        self.newest = commit
        return sum(rows.values())

    def _check_lives(self, parts: Sequence[Part]) -> None:
        """Check that no log was deleted and made anew while it was read."""
        alive = self.ends()
        for part in parts:
            if part.source not in alive:
                raise MessagesLost([f"all of {part.source}, which was deleted while it was archived"])


def _checked(spark: "SparkSession", paths: Sequence[str], parts: Sequence[Part]) -> dict[Source, int]:
    """Read what was written, and return how many rows it has of each part.

    Raises:
        LakeDamaged: something is missing, doubled, or does not belong to it.
    """
    from pyspark.sql.functions import expr

    written = spark.read.schema(SCHEMA).parquet(*paths) if paths else spark.createDataFrame([], SCHEMA)
    found = written.groupBy("topic", "partition", "epoch").agg(
        expr("min(offset)").alias("first"), expr("max(offset)").alias("last"), expr("count(*)").alias("rows")
    )
    by_source = {(row["topic"], row["partition"], row["epoch"]): row for row in found.collect()}
    rows: dict[Source, int] = {}
    for part in parts:
        row = by_source.pop(part.source[1:], None)
        rows[part.source] = 0 if row is None else row["rows"]
        is_inside = row is None or (row["first"] >= part.first and row["last"] < part.end)
        if not is_inside or rows[part.source] > part.size or (rows[part.source] < part.size and not part.has_gaps):
            raise LakeDamaged(
                f"A batch was to hold {part.size} messages of {part.source}, {part.first} to {part.end - 1}, but what "
                f"was written holds {rows[part.source]}. Nothing of it counts; look at the disk, and start again."
            )
    if by_source:
        raise LakeDamaged(f"A batch holds what nobody asked for: {sorted(by_source)}. Nothing of it counts.")
    return rows


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
