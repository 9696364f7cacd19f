"""Reads a topic on a cluster, and tells where that was done. Run with the URL of the store and the topic."""

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "512m",
    # Nothing begins before both executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


def workplace() -> str:
    """Return which executor this is, and where its onebus comes from."""
    import onebus

    return json.dumps([os.getppid(), onebus.__file__])


def main(url: str, topic: str) -> None:
    spark = SparkSession.builder.master("local-cluster[2,1,512]").config(map=SETTINGS).getOrCreate()
    frame = spark.read.format("onebus").options(url=url, subscribe=topic, value="text", minPartitions="4").load()
    rows = frame.select("value", udf(workplace)().alias("place")).collect()
    executors, files = zip(*(json.loads(row.place) for row in rows), strict=True)
    found = {
        "numbers": sorted(int(row.value) for row in rows),
        "executors": sorted(set(executors)),
        "files": sorted(set(files)),
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
