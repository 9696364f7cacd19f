"""A program with Spark in it, to be killed: in each of some stores it carries a topic to another one and to a lake.

    python -m tests.faults.spark_driver FOLDER MASTER TASKS URL…

It says "ready", and begins when it hears "go". It says "batch" for each that is through. What fails because something
was killed is started again; at anything else it says "broken" and ends. When it hears "end" it carries what is left,
and says "done".
"""

import os
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onebus.spark import register
from onebus.spark.jobs import archive
from onebus.spark.jobs.running import Stop

SOURCE, OUT = "in", "out"
OUT_PARTITIONS = 3
MOST_AT_ONCE = 500
MESSAGES_PER_SEAL = 50
SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.excludeOnFailure.enabled": "false",
    "spark.task.maxFailures": "8",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.daemon.module": "tests.faults.warm_daemon",
}


def say(*words: object) -> None:
    print(*words, flush=True)


def start(spark: SparkSession, folder: Path, url: str, tasks: int, *, to_the_end: bool) -> StreamingQuery:
    """Start a query whose rows change their tasks on the way, so that no two runs cut a batch alike."""
    source = spark.readStream.format("onebus").options(url=url, subscribe=SOURCE, startingOffsets="earliest")
    if not to_the_end:
        source = source.option("maxOffsetsPerTrigger", str(MOST_AT_ONCE))
    rows = source.load().selectExpr("cast(cast(value as string) as bigint) id")
    rows = rows.selectExpr("cast(id % 101 as string) key", "to_json(struct(id, id * 2 as twice)) value")
    out = (
        rows.repartition(tasks, "key")
        .writeStream.format("onebus")
        .options(
            url=url,
            topic=OUT,
            partitions=str(OUT_PARTITIONS),
            value="json",
            checkpointLocation=str(folder / url.partition(":")[0]),
        )
    )
    return (out.trigger(availableNow=True) if to_the_end else out.trigger(processingTime="0 seconds")).start()


def lake_of(folder: Path, url: str) -> Path:
    return folder / f"lake-{url.partition(':')[0]}"


def archive_all(spark: SparkSession, folder: Path, url: str, stop: Stop) -> None:
    """Archive the source until told to stop, with young files that soon become visible."""
    while not stop.is_set:
        try:
            archive(
                spark,
                str(lake_of(folder, url)),
                url=url,
                topics=[SOURCE],
                once=False,
                rows_at_once=MOST_AT_ONCE,
                seal_rows=MESSAGES_PER_SEAL,
                every_seconds=0.1,
                stop=stop,
                on_batch=lambda batch: say("archived", url, batch.number),
            )
        except Exception as error:
            end_unless_killed(error)


def end_unless_killed(error: BaseException | None) -> None:
    """Say that something has failed. If it was not Spark that missed a process, this program ends.

    Spark tells of such things in many words. It does not tell of errors of onebus then: those are of another kind.
    """
    text = str(error)
    is_from_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
    if is_from_spark and "onebus.errors." not in text:
        say("failed", text.splitlines()[:1])
        return
    say("broken", type(error).__name__, " ".join(text.split()))
    os._exit(1)


def main() -> None:
    folder, master, tasks, *urls = sys.argv[1:]
    spark = SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()
    register(spark)
    say("ready")
    sys.stdin.readline()

    ending = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        ending.set()

    threading.Thread(target=listen, daemon=True).start()

    def run(url: str, *, to_the_end: bool) -> StreamingQuery:
        return start(spark, Path(folder), url, int(tasks), to_the_end=to_the_end)

    stop = Stop()
    archivers = [threading.Thread(target=archive_all, args=(spark, Path(folder), url, stop)) for url in urls]
    for archiver in archivers:
        archiver.start()
    queries = {url: run(url, to_the_end=False) for url in urls}
    seen: set[tuple[str, int]] = set()
    while not ending.is_set():
        for url, query in queries.items():
            if not query.isActive:
                end_unless_killed(query.exception())
                queries[url] = run(url, to_the_end=False)
            progress = query.lastProgress
            if progress is not None and progress["numInputRows"] and (url, progress["batchId"]) not in seen:
                seen.add((url, progress["batchId"]))
                say("batch", url, progress["batchId"])
        time.sleep(0.05)
    for query in queries.values():
        query.stop()
    queries = {url: run(url, to_the_end=True) for url in urls}
    stop.set()
    for archiver in archivers:
        archiver.join()
    for url in urls:
        archive(spark, str(lake_of(Path(folder), url)), url=url, topics=[SOURCE])
    for query in queries.values():
        query.awaitTermination()
    say("done")
    spark.stop()


if __name__ == "__main__":
    main()
