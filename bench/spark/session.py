"""The Spark with which all is measured: two cores of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.spark.rows import RowDataSource
from onebus.errors import SparkUnusable
from onebus.spark import check_spark, register, use_this_interpreter
from tests.services import MissingService

CORES = 2
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Start Spark, and stop it afterwards."""
    try:
        check_spark()
    except SparkUnusable as error:
        raise MissingService(str(error)) from None
    use_this_interpreter()
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": str(CORES),
        # What docs/pipeline.md advises to whoever is in a hurry.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": f"{folder}/local",
    }
    session = SparkSession.builder.master(f"local[{CORES}]").config(map=settings).getOrCreate()
    try:
        register(session)
        session.dataSource.register(RowDataSource)
        yield session
    finally:
        session.stop()


def read(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    """Return the values and ids of a topic."""
    wanted = {"subscribe": topic, "columns": "value,offset", **options}
    return spark.read.format("onebus").options(url=url, **wanted).load()


def consume(frame: DataFrame) -> None:
    """Read all of a data frame, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()
