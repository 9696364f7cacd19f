"""``rollup``: how many messages there were, how large, how fresh, and of how many keys, by object and time.

The windows are of the messages' own time. A window is written once, when the newest message is so much later that
nothing more is expected for it; until then it is kept in the checkpoint. So a run that ends with what is there now
leaves its last windows open, and the next run goes on with them.
"""

import fnmatch
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from onebus.errors import InvalidArgument
from onebus.spark.jobs.store import JobStore, matching
from onebus.spark.jobs.tables import checkpoint_path, query_of, replace_batch, table_path
from onebus.spark.logs import FEED, TOPIC

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TABLE: Final = "rollup"
USUAL_CHANNEL: Final = "/rollup"

_SHARES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


def rollup(
    spark: SparkSession,
    lake: str,
    *,
    topics: Sequence[str] = (),
    feeds: Sequence[str] = (),
    url: str | None = None,
    window: str = "1 minute",
    watermark: str = "1 minute",
    publish_to: str | None = USUAL_CHANNEL,
    checkpoint: str | None = None,
    once: bool = False,
    every: str = "1 second",
) -> "StreamingQuery":
    """Roll up topics and channels into the table ``rollup`` of a lake and into a feed, each window once.

    Args:
        lake: A folder, or the URL of one, that all executors reach.
        topics: Their names; ``*`` stands for any letters.
        feeds: The names of channels, likewise.
        url: Where the store is, unless the session or the environment says so.
        window: How long a window is, such as ``10 seconds``.
        watermark: How much later than the newest message another may come and still be counted.
        publish_to: The channel to which the rows are published as well, or None.
        checkpoint: Where the state is kept, unless it is in the lake, where each choice of sources has its own.
        once: End with what is there now, instead of going on.
        every: How often what is new is looked at, unless `once`.

    Raises:
        InvalidArgument: nothing is to be rolled up, or the roll-up itself.
    """
    if not topics and not feeds:
        raise InvalidArgument("Say what to roll up: topics or feeds.")
    if publish_to is not None and any(fnmatch.fnmatchcase(publish_to, name) for name in feeds):
        raise InvalidArgument(f"The channel {publish_to} is where the roll-up goes: it would roll up itself for ever.")
    store = JobStore(spark, url).options
    kinds = {TOPIC: topics, FEED: feeds}
    sources = [_messages(spark, kind, names, store) for kind, names in kinds.items() if names]
    windows = roll_up(reduce(DataFrame.unionByName, sources), window=window, watermark=watermark)

    path = table_path(spark, lake, TABLE)

    def write(batch: DataFrame, number: int) -> None:
        rows = batch.persist()
        try:
            # All of it is computed, also where nothing comes of it: otherwise state would be lost.
            if rows.count():
                replace_batch(rows.coalesce(1), path, number)
                if publish_to is not None:
                    _publish(rows, number, store, publish_to)
        finally:
            rows.unpersist()

    stream = windows.writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", checkpoint or checkpoint_path(spark, lake, _name(kinds)))
    return (stream.trigger(availableNow=True) if once else stream.trigger(processingTime=every)).start()


def roll_up(messages: DataFrame, *, window: str, watermark: str = "0 seconds") -> DataFrame:
    """Return one row for each window and object of some messages, which have a column ``kind`` beside the usual.

    The latency is from when a message was published until Spark took it up. Percentiles and the number of keys are
    approximate: a percentile by a ten-thousandth of the messages, the number of keys by some percent.
    """
    latency = (f.current_timestamp().cast("double") - f.col("timestamp").cast("double")) * 1000
    percentiles = f.percentile_approx("latency_ms", list(_SHARES.values()))
    counted = (
        # Clocks of two machines differ, and nothing arrives before it was sent.
        messages.withColumn("latency_ms", f.greatest(latency, f.lit(0.0)).cast("bigint"))
        .withWatermark("timestamp", watermark)
        .groupBy(f.window("timestamp", window), "kind", "topic")
        .agg(
            f.count("*").alias("messages"),
            f.sum(f.octet_length("value")).alias("bytes"),
            f.approx_count_distinct("key").alias("keys"),
            percentiles.alias("latency"),
        )
    )
    return counted.select(
        f.col("window.start").alias("start"),
        f.col("window.end").alias("end"),
        "kind",
        f.col("topic").alias("name"),
        "messages",
        "bytes",
        f.least("keys", "messages").alias("keys"),
        *(f.col("latency")[number].alias(name) for number, name in enumerate(_SHARES)),
    )


def _name(kinds: Mapping[str, Sequence[str]]) -> str:
    """Return a name for the state of a roll-up that no other has, whatever the order of its sources is."""
    sources = json.dumps({kind: sorted(set(names)) for kind, names in kinds.items()})
    return f"{TABLE}-{hashlib.sha256(sources.encode()).hexdigest()[:16]}"


def _messages(spark: SparkSession, kind: str, names: Sequence[str], store: dict[str, str]) -> DataFrame:
    options = {"kind": kind, "startingOffsets": "earliest", "columns": "key,value,topic,timestamp"}
    options |= matching(names) | store
    return spark.readStream.format("onebus").options(**options).load().withColumn("kind", f.lit(kind))


def _publish(rows: DataFrame, number: int, store: dict[str, str], channel: str) -> None:
    """Publish rows to a channel, unless an earlier run of this micro-batch has done it."""
    values = rows.sort("start", "kind", "name").select(f.to_json(f.struct("*")).alias("value"))
    options = {"kind": FEED, "topic": channel, "sinkId": f"rollup-{query_of(rows)}", "batchId": str(number), **store}
    values.coalesce(1).write.format("onebus").options(**options).mode("append").save()
