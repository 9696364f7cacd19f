"""``transform``: the user's SQL, or Python function, from topics to a topic or the lake, each row once."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType, TimestampType

from onebus.errors import InvalidArgument
from onebus.spark.jobs.declaration import Declaration, Source
from onebus.spark.jobs.function import function_of
from onebus.spark.jobs.store import JobStore
from onebus.spark.jobs.tables import appending_to, checkpoint_path, table_path
from onebus.spark.logs import FEED, TOPIC

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_OF_EVERY_MESSAGE = ("key", "topic", "partition", "offset", "timestamp")


def transform(
    spark: SparkSession,
    file: Path | str,
    *,
    url: str | None = None,
    lake: str | None = None,
    checkpoint: str | None = None,
    once: bool = False,
    every: str = "0 seconds",
) -> "StreamingQuery":
    """Begin what a file declares, or go on with it.

    Args:
        file: What to do; see `onebus.spark.jobs.declaration`.
        url: Where the store is, unless the session or the environment says so.
        lake: The folder of the tables, for a file that writes to one.
        checkpoint: Where the stream keeps how far it has come, unless it is in the lake.
        once: End with what is there now, instead of going on.
        every: How often what is new is looked at, unless `once`.

    Raises:
        InvalidTransform: the file cannot be used; the text names the key.
        InvalidArgument: there is no place for the checkpoint, or the table.
    """
    declared = Declaration.read(file)
    if checkpoint is None and lake is None:
        raise InvalidArgument("Say with checkpoint where the stream keeps how far it has come, or give it a lake.")
    store = JobStore(spark, url).options
    stream = _written(declared, result_of(spark, declared, store), store, lake)
    if checkpoint is None and lake is not None:
        checkpoint = checkpoint_path(spark, lake, declared.file.stem)
    stream = stream.option("checkpointLocation", checkpoint or "")
    stream = stream.trigger(availableNow=True) if once else stream.trigger(processingTime=every)
    try:
        return stream.start()
    except PySparkException as error:
        raise declared.wrong(_way(declared), _text(error)) from None


def result_of(spark: SparkSession, declared: Declaration, store: Mapping[str, str]) -> DataFrame:
    """Return the rows that a declaration makes of its streams."""
    streams = {name: _stream(spark, declared, name, source, store) for name, source in declared.sources.items()}
    try:
        if declared.sql is not None:
            result: object = _by_sql(spark, declared.sql, streams)
        else:
            result = function_of(declared)(**streams)
    except PySparkException as error:
        raise declared.wrong(_way(declared), _text(error)) from None
    if not isinstance(result, DataFrame) or not result.isStreaming:
        raise declared.wrong(_way(declared), "It does not return a stream that is made of those in from.")
    return result


# What is read


def _stream(
    spark: SparkSession, declared: Declaration, name: str, source: Source, store: Mapping[str, str]
) -> DataFrame:
    of_bus = {"kind": FEED, "subscribe": source.feed} if source.feed is not None else {"kind": TOPIC}
    options = {"subscribe": source.topic or name, "startingOffsets": source.starting, **of_bus, **store}
    fields = ["value"]
    if source.schema is not None:
        fields = _fields(declared, name, source.schema)
    options |= {"value": "text"} if source.schema is None else {"value": "json", "schema": source.schema}
    try:
        messages = spark.readStream.format("onebus").options(**options).load()
    except PySparkException as error:
        raise declared.wrong(f"from.{name}", _text(error)) from None
    values = [f.col("value") if source.schema is None else f.col("value")[field].alias(field) for field in fields]
    # A field hides what every message has.
    others = [
        f.col(column).cast("string") if column == "key" else f.col(column)
        for column in _OF_EVERY_MESSAGE
        if column not in fields
    ]
    return _in_time(declared, name, source, messages.select(*values, *others))


def _fields(declared: Declaration, name: str, schema: str) -> list[str]:
    try:
        parsed = StructType.fromDDL(schema)
    except PySparkException as error:
        raise declared.wrong(f"from.{name}.schema", _text(error)) from None
    if not isinstance(parsed, StructType):
        raise declared.wrong(f"from.{name}.schema", f"It is such as 'id bigint, page string', and not {schema!r}.")
    return parsed.fieldNames()


def _in_time(declared: Declaration, name: str, source: Source, rows: DataFrame) -> DataFrame:
    for column in (source.time, *source.unique):
        if column not in rows.columns:
            key = "time" if column == source.time else "unique"
            raise declared.wrong(
                f"from.{name}.{key}", f"There is no column {column!r}. There are {', '.join(rows.columns)}."
            )
    if source.watermark is None:
        return rows
    if not isinstance(rows.schema[source.time].dataType, TimestampType):
        raise declared.wrong(f"from.{name}.time", f"The column {source.time!r} must be a timestamp.")
    try:
        rows = rows.withWatermark(source.time, source.watermark)
    except PySparkException as error:
        raise declared.wrong(f"from.{name}.watermark", _text(error)) from None
    return rows.dropDuplicatesWithinWatermark(list(source.unique)) if source.unique else rows


# What is done


def _by_sql(spark: SparkSession, sql: str, streams: Mapping[str, DataFrame]) -> DataFrame:
    for name, stream in streams.items():
        stream.createOrReplaceTempView(name)
    try:
        return spark.sql(sql)
    finally:
        # The plan knows its streams by now; whoever uses the session next need not.
        for name in streams:
            spark.catalog.dropTempView(name)


# What is written


def _written(declared: Declaration, rows: DataFrame, store: Mapping[str, str], lake: str | None) -> "DataStreamWriter":
    to = declared.to
    if to.table is not None:
        if lake is None:
            raise InvalidArgument(f"{declared.file} writes to a table: say where the lake is.")
        return rows.writeStream.foreachBatch(appending_to(table_path(rows.sparkSession, lake, to.table)))
    if to.key is not None and to.key not in rows.columns:
        raise declared.wrong("to.key", f"There is no column {to.key!r}. There are {', '.join(rows.columns)}.")
    kind, name = to.of_bus
    columns = [f.to_json(f.struct(*(f.col(f"`{column}`") for column in rows.columns))).alias("value")]
    if to.key is not None:
        columns.append(f.col(f"`{to.key}`").cast("string").alias("key"))
    options = {"kind": kind, "topic": name, "value": "json", **store}
    if to.partitions is not None:
        options["partitions"] = str(to.partitions)
    return rows.select(*columns).writeStream.format("onebus").options(**options)


# What is wrong


def _way(declared: Declaration) -> str:
    return "sql" if declared.sql is not None else "python"


def _text(error: PySparkException) -> str:
    """Return what Spark says, without the trace of whoever said it."""
    text = (error.getMessage() or str(error)).partition("\nJVM stacktrace")[0].strip()
    found = re.findall(r"^onebus\.errors\.\w+: (.+)$", text, re.MULTILINE)
    return found[-1] if found else text
