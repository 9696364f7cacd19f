"""What becomes of topics on their way to topics and lakes, when Spark's driver or executors are killed, many times."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from pyarrow.dataset import dataset

from onebus import Bus
from onebus.errors import SparkUnusable
from onebus.spark.session import check_spark
from tests.conftest import needing, running
from tests.eventually import eventually
from tests.faults.program import ROOT, Program
from tests.faults.spark_driver import OUT, OUT_PARTITIONS, SOURCE, lake_of
from tests.services import PostgresServer, RedisServer

KILLS = 10
LONGEST_WAIT_SECONDS = 2.0
"""For how long something lives that is about to be killed."""
PAUSE_SECONDS = 0.1
MESSAGES_AT_ONCE = 20

EXECUTORS = ("CoarseGrainedExecutorBackend",)
WORKERS = ("-m pyspark.daemon", "-m tests.faults.warm_daemon")
"""The Python programs of the driver, which plan and commit, and those of the executors.

How they are started is a part of it, because Java has their names on its command line, too.
"""

ENVIRONMENT = {
    # The compiler that starts fast is the better one for a program that soon dies.
    "PYSPARK_SUBMIT_ARGS": "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell",
    # What has threads cannot be forked.
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


class Driver(Program):
    """A driver of Spark, and everything that it has started."""

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def kill(self) -> None:
        # Java is in its group. Python's workers are not, and notice by themselves, perhaps only when they have written.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await super().kill()


@asynccontextmanager
async def spark_driver(folder: Path, master: str, tasks: int, urls: Sequence[str]) -> AsyncIterator[Driver]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults.spark_driver",
        str(folder),
        master,
        str(tasks),
        *urls,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | {"SPARK_LOCAL_DIRS": str(folder), "PYSPARK_PYTHON": str(_python_in(folder))},
        start_new_session=True,
    )
    driver = Driver(process)
    try:
        yield driver
    finally:
        await driver.kill()


def _python_in(folder: Path) -> Path:
    """Return an interpreter that finds the tests, and PySpark where it is compiled: Spark would give it a zip file."""
    python = folder / "python"
    if not python.exists():
        python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}:{ROOT / "src"} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
    return python


class Feeder:
    """Publishes numbers to the source in all stores, one after the other, until it is told to stop."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._count = 0
        self._is_full = False

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            buses = [await stack.enter_async_context(Bus(url)) for url in self._urls]
            topics = [bus.topic(SOURCE, partitions=2) for bus in buses]
            while not self._is_full:
                numbers = [str(self._count + offset) for offset in range(MESSAGES_AT_ONCE)]
                partition = self._count // MESSAGES_AT_ONCE % 2
                await asyncio.gather(*(topic.publish_many(numbers, partition=partition) for topic in topics))
                self._count += MESSAGES_AT_ONCE
                await asyncio.sleep(PAUSE_SECONDS)

    def stop(self) -> None:
        """Publish nothing more than what is on its way."""
        self._is_full = True

    @property
    def published(self) -> range:
        """What was published, once it has ended."""
        return range(self._count)


async def arrived(url: str) -> list[int]:
    """Return the numbers in the topic that was written, sorted."""
    found: list[int] = []
    async with Bus(url) as bus:
        topic = bus.topic(OUT)
        for partition in range(OUT_PARTITIONS):
            after = 0
            while messages := await topic.read(partition, after, 10_000):
                assert all(message.data["twice"] == 2 * message.data["id"] for message in messages)
                found += [message.data["id"] for message in messages]
                after = messages[-1].id
    return sorted(found)


@pytest.fixture
def urls(tmp_path: Path) -> Iterator[list[str]]:
    """A store of each kind, all of which one Spark uses: it is Spark that takes its time."""
    with needing(SparkUnusable):
        check_spark()
    with running(PostgresServer()) as postgres, running(RedisServer(append_only=True)) as redis:
        yield [f"sqlite:///{tmp_path}/bus.db", postgres.url, redis.url]


def archived(folder: Path, url: str) -> list[int]:
    """Return the numbers in the lake, as any reader of Parquet files finds them, sorted."""
    table = dataset(str(lake_of(folder, url)), partitioning="hive").to_table(columns=["value"])
    return sorted(int(value) for value in table.column("value").to_pylist())


async def check_all(urls: Sequence[str], folder: Path, expected: range) -> None:
    for url in urls:
        for found in (await arrived(url), archived(folder, url)):
            assert (len(found), sum(found)) == (len(expected), sum(expected)), url
            assert found == list(expected), url


@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("spark-faults")
async def test_a_driver_that_is_killed_again_and_again_loses_and_doubles_nothing(
    urls: list[str], tmp_path: Path
) -> None:
    chance = random.Random()
    feeder = Feeder(urls)
    async with AsyncExitStack() as stack:

        async def next_driver(number: int) -> Driver:
            return await stack.enter_async_context(spark_driver(tmp_path, "local[2]", 2 + number % 2, urls))

        async with asyncio.TaskGroup() as group:
            group.create_task(feeder.run())
            driver = await next_driver(0)
            for number in range(KILLS):
                # The next one warms up while this one works.
                following = await next_driver(number + 1)
                await driver.line("ready", deadline_seconds=300)
                driver.tell("go")
                await driver.line("batch", deadline_seconds=300)
                await driver.line("archived", deadline_seconds=300)
                await asyncio.sleep(chance.uniform(0, LONGEST_WAIT_SECONDS))
                await driver.kill()
                driver = following
            feeder.stop()
        await driver.line("ready", deadline_seconds=300)
        driver.tell("go")
        driver.tell("end")
        await driver.line("done", deadline_seconds=300)

    await check_all(urls, tmp_path, feeder.published)


@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("spark-faults")
async def test_executors_and_workers_that_are_killed_again_and_again_lose_and_double_nothing(
    urls: list[str], tmp_path: Path
) -> None:
    chance = random.Random()
    feeder = Feeder(urls)
    async with spark_driver(tmp_path, "local-cluster[1,2,1024]", 3, urls) as driver:
        async with asyncio.TaskGroup() as group:
            group.create_task(feeder.run())
            await driver.line("ready", deadline_seconds=300)
            driver.tell("go")
            for _ in range(KILLS):
                for wanted in (EXECUTORS, WORKERS):
                    await driver.line("batch", after=len(driver.lines), deadline_seconds=300)
                    await asyncio.sleep(chance.uniform(0, LONGEST_WAIT_SECONDS))
                    await kill_one(driver, wanted, chance)
            feeder.stop()
        driver.tell("end")
        await driver.line("done", deadline_seconds=300)

    await check_all(urls, tmp_path, feeder.published)


async def kill_one(driver: Driver, wanted: Sequence[str], chance: random.Random) -> None:
    """Kill a process of a driver that runs one of some programs. One that has just gone by itself does not count."""
    while True:
        try:
            os.kill(chance.choice(await processes_of(driver, wanted)), signal.SIGKILL)
        except ProcessLookupError:
            continue
        return


async def processes_of(driver: Driver, wanted: Sequence[str]) -> list[int]:
    """Return the processes of a driver that run one of some programs; wait until there are some."""

    async def look() -> list[int]:
        return [pid for pid in _descendants(driver.pid) if any(program in _command(pid) for program in wanted)]

    return await eventually(look, deadline_seconds=60)


def _descendants(pid: int) -> list[int]:
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    children = [int(child) for line in lists for child in line.split()]
    return [*children, *(one for child in children for one in _descendants(child))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
