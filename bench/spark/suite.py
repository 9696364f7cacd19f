"""The suite for Spark: the bus as a source and a sink, beside the ordinary ways and Spark's own, in the same run."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from bench import targets
from bench.latency import FollowStamps, Pace, SendStamps, summary
from bench.log import crew_of
from bench.places import Place, RedisPlace, SqlitePlace, opened
from bench.progress import Progress
from bench.report import MEGABYTES, MILLISECONDS, RATE, Measurement, Report, comparison, measurement
from bench.spark.clicks import SIZE, clicks, fill, fill_long, forget
from bench.spark.cores import one_core
from bench.spark.memory import heap_bytes, programs_bytes
from bench.spark.rows import NARROW, PushEach, keep_rows
from bench.spark.session import CORES, consume, read, spark_session
from onebus.objects.topics.names import log_of
from onebus.spark.options import ReadOptions
from onebus.spark.reading import BusReader

FULL = 5_000_000
QUICK = 100_000
TOPIC = "clicks"
PARTITIONS = 4
PLANNINGS = 20
STREAM_BATCHES = 2
STREAM_SECONDS = 600
SAMPLES = 10
"""A tenth of the 100 micro-batches of a stream lies between two looks at its memory."""
ONE_CORE = "one task, all on one core"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: everything grows and shrinks with the number of messages."""

    messages: int = FULL

    @property
    def rounds(self) -> int:
        return 3 if self.messages > QUICK else 1

    @property
    def pushes(self) -> int:
        return self._scaled(20_000, at_least=200)

    @property
    def trickle(self) -> int:
        return self._scaled(2000, at_least=200)

    @property
    def micro_batches(self) -> int:
        return self._scaled(100, at_least=10)

    @property
    def long(self) -> int:
        return self._scaled(100_000_000, at_least=1_000_000)

    @property
    def short(self) -> int:
        return 100_000

    def _scaled(self, full: int, at_least: int) -> int:
        return max(full * self.messages // FULL, at_least)


@dataclass(slots=True)
class Setting:
    """A store with clicks in it, and the same clicks as files."""

    spark: SparkSession
    place: Place
    folder: Path
    batch_rate: float = 0.0
    """How fast a batch of all was read here, in messages per second."""

    @property
    def parquet(self) -> str:
        return f"{self.folder}/{TOPIC}.parquet"

    @property
    def rows(self) -> str:
        """Where the same clicks are kept one by one."""
        return self.place.url if isinstance(self.place, RedisPlace) else f"{self.folder}/rows.db"


@dataclass(frozen=True, slots=True)
class SparkSuite:
    """Runs one scenario after the other in one session of Spark, on stores that are filled once."""

    plan: Plan
    report: Report
    progress: Progress

    @contextmanager
    def opened(self) -> Iterator[dict[str, Callable[[], None]]]:
        """Yield what measures each scenario."""
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="onebus-bench-spark-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self.progress.step("starting Spark and the stores")
            places = [stack.enter_context(opened(kind)) for kind in (SqlitePlace, RedisPlace)]
            spark = stack.enter_context(spark_session(folder))
            settings = [Setting(spark, place, folder / place.name) for place in places]
            for setting in settings:
                self._prepare(setting)
            measures = {
                "batch read": self.batch_read,
                "batch write": self.batch_write,
                "stream": self.stream,
                "trickle": self.trickle,
                "memory": self.memory,
                "planning": self.planning,
            }
            yield {
                f"{name} on {setting.place.name}": partial(measure, setting)
                for setting in settings
                for name, measure in measures.items()
            }

    def _prepare(self, setting: Setting) -> None:
        count, url = self.plan.messages, setting.place.url
        self.progress.step(f"{setting.place.name}: {count:,} messages")
        fill(url, TOPIC, count, PARTITIONS)
        read(setting.spark, url, TOPIC).write.parquet(setting.parquet)

    def batch_read(self, setting: Setting) -> None:
        spark, url = setting.spark, setting.place.url
        self._keep_rows(setting)
        rows = spark.read.format("rows").options(place=setting.rows, partitions=str(PARTITIONS))
        all_at_once = read(spark, url, TOPIC)
        ways: dict[str, tuple[DataFrame, targets.Target | None]] = {
            "onebus": (all_at_once, None),
            "a row-by-row Python data source": (rows.load().select("value", "offset"), targets.SPARK_ROW_BY_ROW),
            "the same, with no other columns": (rows.schema(NARROW).load(), None),
            "Spark's own Parquet": (spark.read.parquet(setting.parquet), targets.SPARK_PARQUET),
            "one task": (all_at_once.coalesce(1), None),
            ONE_CORE: (all_at_once.coalesce(1), targets.SPARK_TWO_TASKS),
        }
        rates = self._read_rates(setting, {name: frame for name, (frame, _) in ways.items()})
        setting.batch_rate = rates.pop("onebus")
        own = self._add(setting, "batch read of value and offset", setting.batch_rate, RATE)
        for peer, rate in rates.items():
            self.report.add(comparison(own, peer, rate, target=ways[peer][1]))

    def _keep_rows(self, setting: Setting) -> None:
        self.progress.step(f"{setting.place.name}: the same messages one by one")
        keep_rows(setting.rows, clicks(self.plan.messages), PARTITIONS)

    def _read_rates(self, setting: Setting, frames: dict[str, DataFrame]) -> dict[str, float]:
        """Read in several ways, in turns: Java gets faster for a while, and none of them is to gain from that alone."""
        taken: dict[str, list[float]] = {name: [] for name in frames}
        for number in range(self.plan.rounds + 1):
            self.progress.step(f"{setting.place.name}: batch read, round {number}")
            for name, frame in frames.items():
                with one_core() if name == ONE_CORE else nullcontext():
                    taken[name].append(_seconds(partial(consume, frame)))
        # The first time starts the programs that all others use.
        return {name: self.plan.messages / median(seconds[1:]) for name, seconds in taken.items()}

    def batch_write(self, setting: Setting) -> None:
        spark, url = setting.spark, setting.place.url
        rows = spark.read.parquet(setting.parquet).select("value")
        self.progress.step(f"{setting.place.name}: batch write")
        taken = []
        for _ in range(self.plan.rounds):
            taken.append(_seconds(partial(_write, rows, url, "written")))
            forget(url, "written")
        self.progress.step(f"{setting.place.name}: one push for each row")
        few = rows.limit(self.plan.pushes).repartition(CORES).cache()
        few.count()
        pushing = _seconds(lambda: few.foreachPartition(PushEach(url, "pushed")))
        own = self._add(setting, "batch write", self.plan.messages / median(taken), RATE)
        peer = "foreachPartition with one push for each row"
        self.report.add(comparison(own, peer, self.plan.pushes / pushing, target=targets.SPARK_PUSH_EACH))

    def stream(self, setting: Setting) -> None:
        self.progress.step(f"{setting.place.name}: a stream from topic to topic")
        # As with the batch read, the first time is not counted: Java gets faster until then.
        _, *rates = [self._stream_rate(setting, f"streamed-{number}") for number in range(self.plan.rounds + 1)]
        own = self._add(setting, "stream from topic to topic", median(rates), RATE)
        self.report.add(comparison(own, "the batch read", setting.batch_rate, target=targets.SPARK_STREAM))

    def _stream_rate(self, setting: Setting, target: str) -> float:
        query = _copy(setting, TOPIC, target, limit=self.plan.messages // STREAM_BATCHES, to_the_end=True)
        _finish(query)
        forget(setting.place.url, target)
        # The first batch starts the programs that all others use.
        counted = [progress for progress in query.recentProgress if progress["numInputRows"]][1:]
        milliseconds = sum(progress["durationMs"]["triggerExecution"] for progress in counted)
        return float(sum(progress["numInputRows"] for progress in counted) / milliseconds * 1000)

    def trickle(self, setting: Setting) -> None:
        self.progress.step(f"{setting.place.name}: a trickle from topic to topic")
        url, pace = setting.place.url, Pace("100 messages/s", self.plan.trickle, pause_seconds=0.01)
        fill(url, "drops", 1, 1)
        query = _copy(setting, "drops", "dropped")
        try:
            # The first message is under way for as long as Spark needs to begin; it is not among those that count.
            while query.lastProgress is None and query.isActive:
                time.sleep(0.05)
            with crew_of(setting.place) as crew:
                sender = SendStamps(url, log_of("drops", 0), SIZE, pace)
                _, ages = crew.at_once(url, sender, FollowStamps(url, log_of("dropped", 0), pace))
        finally:
            query.stop()
        found = summary(ages)
        what = "100 messages/s from topic to topic, latency"
        self._add(setting, f"{what} p50", found.p50_ms, MILLISECONDS, target=targets.SPARK_TRICKLE)
        self._add(setting, f"{what} p99", found.p99_ms, MILLISECONDS)

    def memory(self, setting: Setting) -> None:
        count = self.plan.micro_batches
        self.progress.step(f"{setting.place.name}: memory over {count} micro-batches")
        query = _copy(setting, TOPIC, "watched", limit=self.plan.messages // count, to_the_end=True)
        weights = self._weights(setting, query)
        _finish(query)
        forget(setting.place.url, "watched")
        for name, series in zip(("Java heap", "Python programs"), zip(*weights, strict=True), strict=True):
            growth = (max(series[1:]) - series[0]) / 1e6
            what = f"{name}: growth in the last 80 % of {count} micro-batches"
            self._add(setting, what, max(growth, 0.0), MEGABYTES, target=targets.SPARK_GROWTH)

    def _weights(self, setting: Setting, query: StreamingQuery) -> list[tuple[int, int]]:
        """Return what Spark weighs while a stream runs, from a fifth of its micro-batches on, a tenth of them apart."""
        count = self.plan.micro_batches
        weights: list[tuple[int, int]] = []
        due = count // 5
        while query.isActive:
            if _batches(query) < due:
                time.sleep(0.05)
                continue
            weights.append((heap_bytes(setting.spark), programs_bytes(setting.spark)))
            due = _batches(query) + count // SAMPLES
        while len(weights) < 2:
            # A quick stream was over before it was seen.
            weights.append((heap_bytes(setting.spark), programs_bytes(setting.spark)))
        return weights

    def planning(self, setting: Setting) -> None:
        long, short, url = self.plan.long, self.plan.short, setting.place.url
        taken: dict[int, float] = {}
        for count in (short, long):
            self.progress.step(f"{setting.place.name}: a topic with {count:,} messages")
            fill_long(url, f"long-{count}", count)
        for count in (short, long):
            options = {"url": url, "subscribe": f"long-{count}", "minPartitions": "16"}
            planned = BusReader(ReadOptions.parse(options, streaming=False), StructType())
            planned.partitions()
            taken[count] = median(_seconds(planned.partitions) for _ in range(PLANNINGS)) * 1000
        own = self._add(setting, f"planning a read of {long:,} messages".replace(",", " "), taken[long], MILLISECONDS)
        peer = f"with {short:,} messages".replace(",", " ")
        self.report.add(comparison(own, peer, taken[short], target=targets.SPARK_LONG_TOPIC))

    def _add(
        self, setting: Setting, what: str, value: float, unit: str, *, target: targets.Target | None = None
    ) -> Measurement:
        return self.report.add(
            measurement(setting.place.name, SIZE, f"{setting.place.name}: {what}", value, unit, target=target)
        )


def _write(rows: DataFrame, url: str, topic: str) -> None:
    options = {"url": url, "topic": topic, "partitions": str(PARTITIONS)}
    rows.write.format("onebus").options(**options).mode("append").save()


def _copy(
    setting: Setting, source: str, target: str, *, limit: int | None = None, to_the_end: bool = False
) -> StreamingQuery:
    """Begin to copy a topic to another one, with as many partitions."""
    url = setting.place.url
    wanted = {"url": url, "subscribe": source, "startingOffsets": "earliest", "columns": "value"}
    if limit is not None:
        wanted["maxOffsetsPerTrigger"] = str(limit)
    partitions = str(PARTITIONS if source == TOPIC else 1)
    rows = setting.spark.readStream.format("onebus").options(**wanted).load()
    stream = rows.writeStream.format("onebus").options(url=url, topic=target, partitions=partitions)
    stream = stream.option("checkpointLocation", f"{setting.folder}/checkpoint-{target}")
    return (stream.trigger(availableNow=True) if to_the_end else stream).start()


def _finish(query: StreamingQuery) -> None:
    if not query.awaitTermination(STREAM_SECONDS):
        query.stop()
        raise TimeoutError(f"The stream took more than {STREAM_SECONDS} s")


def _batches(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return 0 if progress is None else int(progress["batchId"]) + 1


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
