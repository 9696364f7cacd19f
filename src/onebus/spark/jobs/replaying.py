"""Messages of a lake go back to the bus, in their order, each once.

A replay has an id. What it plays is planned once and kept in the lake: batch by batch, which ids of which partition.
Each batch is written under the id of the replay and its own number, and the store knows which it has. So a replay
that died is finished by starting it again, and one that is through adds nothing.
"""

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import msgspec
from msgspec import Struct

from onebus.errors import InvalidArgument
from onebus.objects.topics.description import DEFAULT_PARTITIONS, Descriptions, TopicDescription
from onebus.spark.jobs.lake import Lake
from onebus.spark.jobs.running import Stop
from onebus.spark.jobs.store import JobStore
from onebus.spark.logs import FEED, KINDS, QUEUE, TOPIC
from onebus.spark.sink.decisions import Decisions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REPLAYS: Final = "_onebus/replays"
ROWS_AT_ONCE: Final = 500_000
BATCH_SECONDS: Final = 5.0
"""How much time there is between batches of a replay with a rate."""
PIECE_ROWS: Final = 1000
"""Batches are put together from pieces of so many ids."""
_RESERVED: Final = "onebus-"
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,80}")
_SHOWN: Final = 50
"""So much of its id is in the name of a sink, which has an end."""


class Piece(NamedTuple):
    """Ids of a partition that go together."""

    partition: int
    epoch: str
    first: int
    end: int
    """The first id that does not belong to it."""


class Plan(Struct, frozen=True):
    """What a replay plays. It is kept in the lake, and does not change."""

    source: tuple[str, str]
    target: tuple[str, str]
    since: str
    until: str
    where: str
    value: str
    commit: int
    """What the lake was like when the plan was made."""
    partitions: int
    """How many partitions the target had."""
    batches: tuple[tuple[Piece, ...], ...]
    rows: tuple[int, ...]
    """How many messages each batch has."""
    key: str = ""
    """What no other plan has: lakes that play into one store may use the same ids."""

    def sink_id(self, replay_id: str) -> str:
        """Return under which name the store knows what was played. Plans of old have no key."""
        return f"replay-{replay_id[:_SHOWN]}-{self.key}" if self.key else f"replay-{replay_id}"

    @property
    def lives(self) -> list[str]:
        """The lives of all logs, those that were played first before the others."""
        return list(dict.fromkeys(piece.epoch for batch in self.batches for piece in batch))


class Replayed(NamedTuple):
    """What a run has done."""

    batches: int
    rows: int
    known: int
    """How many messages an earlier run had played."""


def replay(
    spark: "SparkSession",
    lake: str,
    topic: str,
    target: str,
    *,
    replay_id: str,
    kind: str = TOPIC,
    to: str = TOPIC,
    url: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    where: str = "",
    rate: float | None = None,
    value: str = "bytes",
    stop: Stop | None = None,
    on_batch: Callable[[int, int], object] | None = None,
) -> Replayed:
    """Write messages of a lake to a ``topic``, ``feed`` or ``queue`` of the store, and return how many that were.

    Played is what was published since, and before, a time, and for which ``where`` is true: an SQL expression over the
    columns of the lake. ``rate`` is how many messages a second are played at most. Consumers get values as ``bytes``,
    ``text`` or ``json``, and the times at which they were first published.

    Order: as in each partition of the source. A target topic with as many partitions gets the same partitions;
    otherwise keys decide, and what has no key stays together with the rest of its partition. Channels and queues get
    all partitions by time.

    A run with the same ``replay_id`` goes on where the last one stopped.

    Raises:
        InvalidArgument: something cannot be asked for, or the replay of that id plays something else.
    """
    _check(replay_id, kind, to, rate, value)
    its_lake, store, stop = Lake(spark, lake), JobStore(spark, url), stop or Stop()
    asked = ((kind, topic), (to, target), _text(since), _text(until), where, "json" if to == FEED else value)
    plan = _plan(its_lake, store, replay_id, asked, rate)
    first = store.connection.run(_next_batch(store, plan.sink_id(replay_id)))
    done = 0
    for number in range(first, len(plan.batches)):
        begun = time.monotonic()
        _write(its_lake, store, replay_id, plan, number)
        done += plan.rows[number]
        if on_batch is not None:
            on_batch(number, plan.rows[number])
        pause = plan.rows[number] / rate - (time.monotonic() - begun) if rate is not None else 0
        if number + 1 < len(plan.batches) and stop.wait(max(pause, 0)):
            return Replayed(number + 1 - first, done, sum(plan.rows[:first]))
    return Replayed(max(len(plan.batches) - first, 0), done, sum(plan.rows[:first]))


def _check(replay_id: str, kind: str, to: str, rate: float | None, value: str) -> None:
    if not _ID.fullmatch(replay_id):
        raise InvalidArgument(
            f"The id of a replay has letters, digits, '.', '_' and '-', at most 80, not {replay_id!r}."
        )
    if kind not in KINDS or kind == QUEUE:
        raise InvalidArgument(f"A lake holds topics, feeds and the dead letters of queues (dead), and not {kind!r}.")
    if to not in (TOPIC, FEED, QUEUE):
        raise InvalidArgument(f"Messages are replayed to a topic, feed or queue, and not to {to!r}.")
    if value not in ("bytes", "text", "json"):
        raise InvalidArgument(f"Values are replayed as bytes, text or json, and not as {value!r}.")
    if rate is not None and rate <= 0:
        raise InvalidArgument(f"The rate of a replay is more than 0 messages a second, and not {rate}.")


def _text(moment: datetime | None) -> str:
    if moment is None:
        return ""
    if moment.tzinfo is None:
        raise InvalidArgument(f"The time {moment} does not say in which time zone. Give it one, such as UTC.")
    return moment.isoformat()


async def _next_batch(store: JobStore, sink_id: str) -> int:
    """Return the first batch of which the store does not have everything."""
    newest, _ = await Decisions(store.connection.store, sink_id).newest()
    return 0 if newest is None else newest.batch_id + newest.is_done


# The plan

_Asked = tuple[tuple[str, str], tuple[str, str], str, str, str, str]


def _plan(lake: Lake, store: JobStore, replay_id: str, asked: _Asked, rate: float | None) -> Plan:
    path = f"{REPLAYS}/{replay_id}.json"
    if not lake.files.exists(path):
        lake.files.create(path, msgspec.json.encode(_made(lake, store, asked, rate)))
    plan = msgspec.json.decode(lake.files.read(path), type=Plan)
    if (plan.source, plan.target, plan.since, plan.until, plan.where, plan.value) != asked:
        raise InvalidArgument(
            f"The replay {replay_id!r} was begun with other options: {plan.source} to {plan.target}, since "
            f"{plan.since or 'ever'}, until {plan.until or 'ever'}, where {plan.where or 'true'}. Choose another id."
        )
    return plan


def _made(lake: Lake, store: JobStore, asked: _Asked, rate: float | None) -> Plan:
    from pyspark.sql.functions import expr

    (kind, topic), (to, target), since, until, where, _ = asked
    newest = lake.settled()
    per_batch = ROWS_AT_ONCE if rate is None else max(min(int(rate * BATCH_SECONDS), ROWS_AT_ONCE), 1)
    size = max(min(PIECE_ROWS, per_batch), 1)
    rows = _chosen(lake.frame(newest, kind=kind, topic=topic), since, until, where)
    found = rows.groupBy("epoch", "partition", expr(f"(offset - 1) div {size}").alias("piece")).agg(
        expr("count(*)").alias("rows"),
        expr("max(timestamp)").alias("time"),
        expr("min(offset)").alias("first"),
        expr("max(offset)").alias("last"),
    )
    pieces = sorted(
        (Piece(row["partition"], row["epoch"], row["first"], row["last"] + 1), row["time"], row["rows"])
        for row in found.collect()
    )
    timed: list[tuple[datetime, Piece, int]] = []
    place, latest = None, None
    for piece, moment, number in pieces:
        # A piece is never played before one that precedes it in its partition, whatever its clock said.
        latest = moment if place != (piece.partition, piece.epoch) or latest is None else max(latest, moment)
        place = piece.partition, piece.epoch
        timed.append((latest, piece, number))
    batches, counts = _batches(sorted(timed), per_batch)
    partitions = store.connection.run(_partitions(store, target)) if to == TOPIC else 1
    return Plan(*asked, newest.number, partitions, batches, counts, uuid4().hex)


def _batches(
    timed: Sequence[tuple[datetime, Piece, int]], most: int
) -> tuple[tuple[tuple[Piece, ...], ...], tuple[int, ...]]:
    batches: list[tuple[Piece, ...]] = []
    counts: list[int] = []
    pieces: list[Piece] = []
    rows = 0
    for _, piece, number in timed:
        if pieces and rows + number > most:
            batches.append(_merged(pieces))
            counts.append(rows)
            pieces, rows = [], 0
        pieces.append(piece)
        rows += number
    if pieces:
        batches.append(_merged(pieces))
        counts.append(rows)
    return tuple(batches), tuple(counts)


def _merged(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return one piece for each life of a partition, in the order in which they begin.

    Pieces of a partition come in the order of their ids, so what lies between two of them is in no other batch: the
    plan has nothing there. A choice of few messages among many is thus a few pieces, and not thousands.
    """
    found: dict[tuple[int, str], Piece] = {}
    for piece in pieces:
        known = found.get((piece.partition, piece.epoch), piece)
        found[piece.partition, piece.epoch] = Piece(piece.partition, piece.epoch, known.first, piece.end)
    return tuple(found.values())


async def _partitions(store: JobStore, target: str) -> int:
    wanted = TopicDescription(partitions=DEFAULT_PARTITIONS)
    return (await Descriptions(store.connection.store).ensure(target, wanted)).partitions


def _chosen(frame: "DataFrame", since: str, until: str, where: str) -> "DataFrame":
    from pyspark.sql.functions import col, lit

    if since:
        frame = frame.where(col("timestamp") >= lit(datetime.fromisoformat(since)))
    if until:
        frame = frame.where(col("timestamp") < lit(datetime.fromisoformat(until)))
    return frame.where(where) if where else frame


# Writing


def _write(lake: Lake, store: JobStore, replay_id: str, plan: Plan, number: int) -> None:
    from pyspark.sql.functions import array, array_position, col, expr, lit

    (kind, topic), (to, target) = plan.source, plan.target
    rows = lake.frame(lake.settled(), kind=kind, topic=topic).where(_inside(plan.batches[number]))
    rows = _chosen(rows, plan.since, plan.until, plan.where)
    life = array_position(array(*map(lit, plan.lives)), col("epoch"))
    columns: list[Column] = [col("value"), col("timestamp")]
    if to != FEED:
        headers = f"filter(headers, header -> not startswith(header.key, '{_RESERVED}'))"
        columns += [col("key"), expr(headers).alias("headers")]
    if to == TOPIC:
        sources = 1 + max(piece.partition for batch in plan.batches for piece in batch)
        columns.append(_partition(sources, plan.partitions).alias("partition"))
        # All of a partition is in one task, in order.
        rows = rows.repartition("partition").sortWithinPartitions("partition", life, "offset")
    else:
        latest = expr("max(timestamp) over (partition by epoch, partition order by offset)")
        rows = rows.withColumn("latest", latest).coalesce(1)
        rows = rows.sortWithinPartitions("latest", "partition", life, "offset")
    options = {**store.options, "kind": to, "topic": target, "value": plan.value}
    writer = rows.select(*columns).write.format("onebus").options(**options)
    writer.option("sinkId", plan.sink_id(replay_id)).option("batchId", str(number)).mode("append").save()


def _partition(sources: int, targets: int) -> "Column":
    from pyspark.sql.functions import expr

    if targets >= sources:
        return expr("partition")
    return expr(f"case when key is null then cast(partition % {targets} as int) end")


def _inside(pieces: Sequence[Piece]) -> "Column":
    from pyspark.sql.functions import col

    wanted = [
        (col("epoch") == piece.epoch)
        & (col("partition") == piece.partition)
        & (col("offset") >= piece.first)
        & (col("offset") < piece.end)
        for piece in pieces
    ]
    return reduce(lambda one, other: one | other, wanted)
