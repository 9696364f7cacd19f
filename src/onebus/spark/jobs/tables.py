"""Tables of the lake that grow by the micro-batches of a stream, each of them once.

    LAKE/_tables/NAME/query=ID/batch=N/part-….parquet

A micro-batch that Spark runs again replaces the folder that it may have left behind, so nothing is there twice. A
stream that has lost its checkpoint is another query, and replaces nothing of the one before. Whoever reads the lake as
a whole does not see tables: to Spark, what begins with ``_`` is hidden in the folder above it.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from onebus.spark.jobs.files import Files

BatchWriter = Callable[[DataFrame, int], None]


def table(spark: SparkSession, lake: str, name: str) -> DataFrame:
    """Return a table of a lake, such as ``rollup``. Its columns ``query`` and ``batch`` say where a row comes from."""
    return spark.read.parquet(table_path(spark, lake, name))


def table_path(spark: SparkSession, lake: str, name: str) -> str:
    """Return where a table of a lake is: in the same file system as the rest of it, whichever is Spark's own."""
    return Files(spark, lake).url(f"_tables/{name}")


def checkpoint_path(spark: SparkSession, lake: str, name: str) -> str:
    """Return where a stream keeps its checkpoint, unless it was told where."""
    return Files(spark, lake).url(f"_checkpoints/{name}")


def query_of(batch: DataFrame) -> str:
    """Return the id of the query that a micro-batch belongs to: the one that its checkpoint keeps."""
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query is None:
        raise RuntimeError("This data frame is no micro-batch of a stream.")
    return query


def replace_batch(batch: DataFrame, path: str, number: int) -> None:
    """Write a micro-batch to a table, instead of what an earlier run of it has left there."""
    batch.write.mode("overwrite").parquet(f"{path}/query={query_of(batch)}/batch={number}")


def appending_to(path: str) -> BatchWriter:
    """Return what ``foreachBatch`` calls to append to a table. Micro-batches without rows leave no files."""

    def append(batch: DataFrame, number: int) -> None:
        kept = batch.persist()
        try:
            # All of it is computed, also where nothing comes of it: otherwise state would be lost.
            if kept.count():
                replace_batch(kept, path, number)
        finally:
            kept.unpersist()

    return append
