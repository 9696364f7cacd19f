"""The session of a job that is run as a command."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from onebus.errors import InvalidArgument
from onebus.spark.session import URL_CONF, check_spark, register, use_this_interpreter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USUAL_MASTER: Final = "local[*]"
_USUAL: Final = {
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    # A stream keeps its state in so many parts, for good, and each of them is a task of each micro-batch. Spark's own
    # 200 are for clusters.
    "spark.sql.shuffle.partitions": "8",
}


@contextmanager
def job_session(
    name: str, *, master: str | None = None, conf: Sequence[str] = (), urls: Sequence[str] = ()
) -> Iterator["SparkSession"]:
    """Start Spark for a job, with settings such as ``spark.executor.memory=4g``, and stop it afterwards.

    The master is what `master` says, or the settings, or else all cores of this machine. The stores are known to the
    session, and nothing of them is in its plans or pages, or in the list of processes.

    Raises:
        SparkUnusable: Java or PySpark is missing or too old.
        InvalidArgument: a setting is not NAME=VALUE.
    """
    check_spark()
    use_this_interpreter()
    from pyspark.conf import SparkConf
    from pyspark.sql import SparkSession

    settings: dict[str, bool | float | int | str | None] = {**_USUAL, **_parsed(conf)}
    # Settings of the builder are on the command line of Java, where everybody on the machine can read them.
    configured = settings.pop(URL_CONF, None)
    url = " ".join(urls) or configured
    if master is not None:
        settings["spark.master"] = master
    elif "spark.master" not in settings and not SparkConf().contains("spark.master"):
        settings["spark.master"] = USUAL_MASTER
    spark = SparkSession.builder.appName(f"onebus {name}").config(map=settings).getOrCreate()
    try:
        if url is not None:
            spark.conf.set(URL_CONF, str(url))
        register(spark)
        yield spark
    finally:
        spark.stop()


def _parsed(conf: Sequence[str]) -> Mapping[str, str]:
    settings = {}
    for text in conf:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise InvalidArgument(
                f"A setting of Spark is NAME=VALUE, such as spark.executor.memory=4g, and not {text!r}."
            )
        settings[name.strip()] = value.strip()
    return settings
