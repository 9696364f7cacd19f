"""Which messages a batch takes out of the store, and how Spark reads them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from onebus.spark.jobs.commits import Commit, Holding, Source, joined
from onebus.spark.jobs.lake import MESSAGE_COLUMNS
from onebus.spark.jobs.store import Seen, exactly
from onebus.spark.logs import DEAD, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ends = Mapping[Source, int]

_DATE = "date_from_unix_date(cast(floor(unix_micros(timestamp) / 86400000000) as int)) date"
"""The day in UTC, whatever the time zone of the session is."""


class Part(NamedTuple):
    """What a batch takes of one log."""

    source: Source
    first: int
    end: int
    """The first id that it does not take."""
    has_gaps: bool
    forgotten: tuple[int, int] | None = None
    """What was forgotten before anybody could take it."""

    @property
    def size(self) -> int:
        return self.end - self.first

    def after(self, holding: Holding | None, rows: int) -> Holding:
        """Return what is held of the log once so many rows of this are in the lake."""
        before = holding or Holding(*self.source)
        lost = () if self.forgotten is None else (self.forgotten,)
        return replace(
            before,
            end=self.end,
            rows=before.rows + rows,
            forgotten=joined((*before.forgotten, *lost)),
            has_gaps=self.has_gaps,
        )


def source_of(seen: Seen) -> Source:
    return Source(seen.kind, seen.log.topic, seen.log.partition, seen.stat.epoch)


def ends_of(seen: Iterable[Seen]) -> Ends:
    return {source_of(one): one.stat.last_id + 1 for one in seen}


def planned(newest: Commit, seen: Sequence[Seen], *, until: Ends | None, most: int) -> list[Part]:
    """Return what the next batch takes: of each log what the lake does not have, in proportion if it is too much."""
    parts = [part for one in seen if (part := _part(newest, one, until)) is not None]
    total = sum(part.size for part in parts)
    if total <= most:
        return parts
    return [part._replace(end=part.first + max(part.size * most // total, 1)) if part.size else part for part in parts]


def _part(newest: Commit, one: Seen, until: Ends | None) -> Part | None:
    source = source_of(one)
    end = one.stat.last_id + 1
    if until is not None:
        end = min(end, until.get(source, 1))
    holding = newest.holding(source)
    begin = 1 if holding is None else holding.end
    if begin >= end:
        return None
    first = min(max(begin, one.stat.first_id), end)
    has_gaps = one.log.may_have_gaps
    return Part(source, first, end, has_gaps, (begin, first - 1) if first > begin and not has_gaps else None)


def read_parts(spark: "SparkSession", options: Mapping[str, str], parts: Sequence[Part]) -> "DataFrame":
    """Return the messages of some parts as a lake keeps them.

    Raises:
        MessagesLost: when it is used, if some are gone meanwhile.
    """
    kinds = sorted({part.source.kind for part in parts})
    frames = [_read(spark, options, kind, [part for part in parts if part.source.kind == kind]) for kind in kinds]
    return reduce(lambda one, other: one.unionByName(other), frames)


def offsets_of(ids: Mapping[Source, int]) -> str:
    """Return ids as the options ``startingOffsets`` and ``endingOffsets`` name them."""
    found: dict[str, dict[str, int]] = {}
    for source, id_ in ids.items():
        found.setdefault(source.topic, {})[str(source.partition)] = id_
    return json.dumps(found)


def _read(spark: "SparkSession", options: Mapping[str, str], kind: str, parts: Sequence[Part]) -> "DataFrame":
    from pyspark.sql.functions import array, col, concat, element_at, expr, lit, map_from_arrays

    reader = spark.read.format("onebus").options(**options).option("kind", kind).option("includeHeaders", "true")
    topics = list(dict.fromkeys(part.source.topic for part in parts))
    if kind == DEAD:
        frame = reader.options(**exactly(topics)).load()
        wanted = [
            (col("topic") == part.source.topic) & (col("offset") >= part.first) & (col("offset") < part.end)
            for part in parts
        ]
        frame = frame.where(reduce(lambda one, other: one | other, wanted))
    else:
        if kind == TOPIC:
            assigned = {
                topic: [part.source.partition for part in parts if part.source.topic == topic] for topic in topics
            }
            reader = reader.option("assign", json.dumps(assigned))
        else:
            reader = reader.options(**exactly(topics))
        reader = reader.option("startingOffsets", offsets_of({part.source: part.first for part in parts}))
        frame = reader.option("endingOffsets", offsets_of({part.source: part.end for part in parts})).load()
    places = array(*(lit(f"{part.source.partition}:{part.source.topic}") for part in parts))
    epochs = map_from_arrays(places, array(*(lit(part.source.epoch) for part in parts)))
    frame = frame.withColumn("epoch", element_at(epochs, concat(col("partition"), lit(":"), col("topic"))))
    return frame.select(*MESSAGE_COLUMNS, lit(kind).alias("kind"), col("topic").alias("object"), expr(_DATE))
