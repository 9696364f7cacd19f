"""Is every message there, exactly once? Over all that is in a lake and in the store.

No rows are sorted. In the lake, the ids of a partition are put into blocks of 64, each a word of 64 bits and a count:
a block is complete if all its bits are set, and has doubles if it counts more rows than bits. In the store, batches say
themselves which ids they have; they are read to see that their bytes are what was written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from onebus.errors import CorruptBatch, InvalidArgument, LakeMissing
from onebus.log.batch import decode
from onebus.spark.connection import Urls, connect
from onebus.spark.jobs.batches import source_of
from onebus.spark.jobs.commits import Commit, Holding, Source, Spans, count, joined, without
from onebus.spark.jobs.findings import Audit, SourceFindings
from onebus.spark.jobs.lake import Lake
from onebus.spark.jobs.store import JobStore, Seen, wanted_of, wanted_of_kind
from onebus.spark.logs import DEAD, FEED, TOPIC, Wanted
from onebus.spark.slices import READ_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE = ("kind", "topic", "partition", "epoch")
_BLOCK = 64
_FULL = -1
"""A block with all its bits set, as a number."""
_STORE_TASK = 1_000_000
"""How many ids of the store a task looks at."""


def audit(
    spark: "SparkSession",
    lake: str,
    *,
    url: str | None = None,
    topics: Sequence[str] = (),
    feeds: Sequence[str] = (),
    dead_letters: Sequence[str] = (),
) -> Audit:
    """Look at every message of a lake and of the store, and return what is missing, doubled, or damaged.

    Without names, everything is audited that the lake holds. Nothing is changed. It may be done while the lake is
    written.

    What retention forgot before it was archived is no error: it is listed as forgotten.

    Raises:
        LakeMissing: there is no lake.
        InvalidArgument: what is named is neither in the lake nor in the store.
    """
    its_lake, store = Lake(spark, lake), JobStore(spark, url)
    newest = its_lake.settled()
    if not newest.number:
        raise LakeMissing(
            f"There is no lake at {its_lake.files.root}: nothing was ever archived there. Is it the right one?"
        )
    wanted = wanted_of(topics, feeds, dead_letters) or _all_of(newest)
    seen = {source_of(one): one for one in store.look(wanted, all_must_exist=False)}
    held = {one.source: one for one in newest.holdings if _is_wanted(one, wanted)}
    known = {(one.kind, one.topic) for one in (*held, *seen)} | store.names(wanted)
    _check_names({TOPIC: topics, FEED: feeds, DEAD: dead_letters}, known)
    frame = its_lake.visible(newest, with_strangers=True).unionByName(its_lake.tail(newest))
    blocks = _blocks(frame).persist()
    try:
        found = _found(frame, blocks)
        stored = _look(spark, store.urls, list(seen.values()))
        sources = sorted({*held, *seen, *(source for source in found if _names(wanted, source))})
        return Audit(
            its_lake.files.root,
            [
                _findings(source, held.get(source), found.get(source), seen.get(source), stored.get(source))
                for source in sources
            ],
            _days(frame),
        )
    finally:
        blocks.unpersist()


def _all_of(newest: Commit) -> list[Wanted]:
    names: dict[str, dict[str, None]] = {TOPIC: {}, FEED: {}, DEAD: {}}
    for one in newest.holdings:
        names[one.kind][one.topic] = None
    return wanted_of(*(tuple(names[kind]) for kind in (TOPIC, FEED, DEAD)))


def _is_wanted(holding: Holding, wanted: Sequence[Wanted]) -> bool:
    return _names(wanted, holding.source)


def _names(wanted: Sequence[Wanted], source: Source) -> bool:
    return any(one.kind == source.kind and one.names_topic(source.topic) for one in wanted)


def _check_names(named: Mapping[str, Sequence[str]], known: set[tuple[str, str]]) -> None:
    """Check that there is something behind each name: an audit of what does not exist would find nothing wrong."""
    for kind, names in named.items():
        for name in names:
            (wanted,) = wanted_of_kind(kind, [name])
            if not any(kind == its_kind and wanted.names_topic(its_name) for its_kind, its_name in known):
                raise InvalidArgument(
                    f"There is no {_IN_WORDS[kind]} {name!r}, neither in the lake nor in the store. Check the name."
                )


_IN_WORDS = {TOPIC: "topic", FEED: "channel", DEAD: "queue"}


# The lake


class _Rows(NamedTuple):
    """What the lake has of one source."""

    rows: int
    spans: Spans
    doubled: Spans
    disordered: int


def _blocks(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql.functions import expr

    block = expr(f"offset div {_BLOCK}").alias("block")
    return frame.groupBy(*_SOURCE, block).agg(
        expr(f"bit_or(shiftleft(1L, cast(offset % {_BLOCK} as int)))").alias("bits"),
        expr("count(*)").alias("rows"),
        expr("min(timestamp)").alias("begins"),
        expr("max(timestamp)").alias("ends"),
    )


def _found(frame: "DataFrame", blocks: "DataFrame") -> dict[Source, _Rows]:
    """Return what is in the lake. What is collected is little: runs of complete blocks, and blocks that are not."""
    from pyspark.sql import Window
    from pyspark.sql.functions import col, expr, lag

    order = Window.partitionBy(*_SOURCE).orderBy("block")
    marked = blocks.select(
        *_SOURCE,
        "block",
        "bits",
        "rows",
        (col("begins") < lag("ends").over(order)).alias("is_early"),
        expr("block - row_number() over (partition by kind, topic, partition, epoch, bits = -1 order by block)").alias(
            "island"
        ),
    )
    totals = marked.groupBy(*_SOURCE).agg(
        expr("sum(rows)").alias("rows"), expr("count_if(is_early)").alias("disordered")
    )
    runs = (
        marked.where(f"bits = {_FULL}")
        .groupBy(*_SOURCE, "island")
        .agg(expr("min(block)").alias("first"), expr("max(block)").alias("last"))
    )
    spans: dict[Source, list[tuple[int, int]]] = {}
    for row in runs.collect():
        spans.setdefault(_source(row), []).append((row["first"] * _BLOCK, row["last"] * _BLOCK + _BLOCK - 1))
    for row in blocks.where(f"bits <> {_FULL}").collect():
        spans.setdefault(_source(row), []).extend(_bits(row["block"], row["bits"]))
    doubled = _doubled(frame, blocks)
    return {
        (source := _source(row)): _Rows(
            row["rows"], joined(spans.get(source, ())), doubled.get(source, ()), row["disordered"]
        )
        for row in totals.collect()
    }


def _doubled(frame: "DataFrame", blocks: "DataFrame") -> dict[Source, Spans]:
    """Return which ids are in the lake more than once. Only blocks that have some are looked at again."""
    from pyspark.sql.functions import broadcast, expr

    wanted = blocks.where("rows > bit_count(bits)").select(*_SOURCE, "block")
    if wanted.isEmpty():
        return {}
    rows = frame.select(*_SOURCE, "offset", expr(f"offset div {_BLOCK}").alias("block"))
    ids = rows.join(broadcast(wanted), [*_SOURCE, "block"]).groupBy(*_SOURCE, "offset").count().where("count > 1")
    island = expr("offset - row_number() over (partition by kind, topic, partition, epoch order by offset)")
    runs = (
        ids.withColumn("island", island)
        .groupBy(*_SOURCE, "island")
        .agg(expr("min(offset)").alias("first"), expr("max(offset)").alias("last"))
    )
    found: dict[Source, list[tuple[int, int]]] = {}
    for row in runs.collect():
        found.setdefault(_source(row), []).append((row["first"], row["last"]))
    return {source: joined(spans) for source, spans in found.items()}


def _bits(block: int, bits: int) -> Iterator[tuple[int, int]]:
    for at in range(_BLOCK):
        if bits >> at & 1:
            yield block * _BLOCK + at, block * _BLOCK + at


def _source(row: Any) -> Source:
    return Source(*(row[name] for name in _SOURCE))


def _days(frame: "DataFrame") -> list[tuple[str, str, str, int]]:
    days = frame.groupBy("kind", "object", "date").count().sort("kind", "object", "date")
    return [(row["kind"], str(row["object"]), str(row["date"]), row["count"]) for row in days.collect()]


# The store


class _Stored(NamedTuple):
    """What the store has of some ids."""

    spans: Spans
    corrupt: Spans
    first_id: int = 1
    """The oldest id that it still kept when it was read, which may be later than when it was looked at first."""


def _look(spark: "SparkSession", urls: Urls, seen: Sequence[Seen]) -> dict[Source, _Stored]:
    """Read all batches of some logs, in tasks, and return which ids they have."""
    pieces = [
        (one, first, min(first + _STORE_TASK, one.stat.last_id + 1))
        for one in seen
        if one.kind != DEAD
        for first in range(one.stat.first_id, one.stat.last_id + 1, _STORE_TASK)
    ]
    if not pieces:
        return {}

    def look(piece: tuple[Seen, int, int]) -> tuple[Source, _Stored]:
        return source_of(piece[0]), _read(urls, *piece)

    found: dict[Source, _Stored] = {}
    for source, part in spark.sparkContext.parallelize(pieces, len(pieces)).map(look).collect():
        known = found.get(source, _Stored((), ()))
        found[source] = _Stored(
            joined((*known.spans, *part.spans)),
            joined((*known.corrupt, *part.corrupt)),
            max(known.first_id, part.first_id),
        )
    return found


def _read(urls: Urls, one: Seen, first: int, end: int) -> _Stored:
    connection = connect(urls)
    spans: list[tuple[int, int]] = []
    corrupt: list[tuple[int, int]] = []
    next_id = oldest = first
    while next_id < end:
        work = connection.store.read(one.log.name, after=next_id - 1, limit=end - next_id, max_bytes=READ_BYTES)
        found = connection.run(work)
        if found.epoch != one.stat.epoch:
            # It was deleted meanwhile, so it keeps nothing.
            oldest = end
            break
        oldest = max(oldest, found.first_id)
        if not found.batches:
            break
        for stored in found.batches:
            span = max(stored.first_id, next_id), min(stored.last_id, end - 1)
            try:
                is_whole = decode(stored.blob).count == stored.last_id - stored.first_id + 1
            except CorruptBatch:
                is_whole = False
            if span[0] <= span[1]:
                (spans if is_whole else corrupt).append(span)
        next_id = found.batches[-1].last_id + 1
    return _Stored(joined(spans), joined(corrupt), oldest)


# Both


def _findings(
    source: Source, holding: Holding | None, rows: _Rows | None, seen: Seen | None, stored: _Stored | None
) -> SourceFindings:
    holding = holding or Holding(*source)
    rows = rows or _Rows(0, (), (), 0)
    distinct = count(rows.spans)
    has_gaps = holding.has_gaps or (seen is not None and seen.log.may_have_gaps)
    missing = () if has_gaps else without(holding.held, rows.spans)
    reach = None if seen is None or seen.stat.last_id == 0 else (seen.stat.first_id, seen.stat.last_id)
    stored = stored or _Stored((), ())
    # What the store has forgotten since it was looked at is no hole.
    oldest = 1 if reach is None else max(reach[0], stored.first_id)
    kept: Iterable[tuple[int, int]] = () if reach is None or oldest > reach[1] else ((oldest, reach[1]),)
    late = () if reach is None or has_gaps or reach[0] <= holding.end else ((holding.end, reach[0] - 1),)
    return SourceFindings(
        source,
        lake_rows=rows.rows,
        lake_end=holding.end,
        store=reach,
        missing=missing,
        missing_rows=max(holding.rows - distinct, 0) if has_gaps else count(missing),
        doubled=rows.doubled,
        doubled_rows=rows.rows - distinct,
        unexpected=without(rows.spans, ((1, holding.end - 1),)),
        holes=() if has_gaps else without(kept, (*stored.spans, *stored.corrupt)),
        corrupt=stored.corrupt,
        forgotten=joined((*holding.forgotten, *late)),
        disordered=rows.disordered,
    )
