"""Messages of a lake go back to the bus."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from onebus import Bus
from onebus.errors import InvalidArgument
from onebus.log.batch import Entry, encode
from onebus.objects.topics.names import log_of
from onebus.spark.jobs import archive, replay, replaying
from onebus.spark.jobs.running import Stop
from tests.spark.bus import append, create_topic, numbers, on_bus

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def lake(spark: SparkSession, file_url: str, name: str, tmp_path: Path) -> str:
    """A lake with 40 messages of two partitions, one each second in turn."""
    create_topic(file_url, name, partitions=2)

    async def work(bus: Bus) -> None:
        for partition in (0, 1):
            for number in range(partition, 40, 2):
                key = b"odd" if partition else None
                time_ms = round((BEGIN + timedelta(seconds=number)).timestamp() * 1000)
                blob = encode([Entry(str(number).encode(), key=key)], now_ms=time_ms)
                await bus.link.store.append(log_of(name, partition), blob)

    on_bus(file_url, work)
    archive(spark, str(tmp_path / "lake"), url=file_url, topics=[name])
    return str(tmp_path / "lake")


def played(url: str, name: str, partition: int = 0) -> list[int]:
    async def work(bus: Bus) -> list[int]:
        return [int(message.data) for message in await bus.topic(name).read(partition)]

    return on_bus(url, work)


def test_partitions_and_order_stay_and_a_second_run_adds_nothing(
    spark: SparkSession, file_url: str, name: str, lake: str
) -> None:
    def run() -> tuple[int, int]:
        done = replay(spark, lake, name, f"{name}-2", replay_id="r1", url=file_url)
        return done.rows, done.known

    assert run() == (40, 0)
    assert run() == (0, 40)
    assert played(file_url, f"{name}-2", 0) == list(range(0, 40, 2))
    assert played(file_url, f"{name}-2", 1) == list(range(1, 40, 2))


def test_a_target_with_fewer_partitions_and_a_choice_of_messages(
    spark: SparkSession, file_url: str, name: str, lake: str
) -> None:
    create_topic(file_url, f"{name}-1", partitions=1)

    replay(
        spark,
        lake,
        name,
        f"{name}-1",
        replay_id="r2",
        url=file_url,
        since=BEGIN + timedelta(seconds=10),
        until=BEGIN + timedelta(seconds=20),
        where="cast(cast(value as string) as int) <> 13",
    )

    found = played(file_url, f"{name}-1")
    assert [number for number in found if number % 2 == 0] == [10, 12, 14, 16, 18]
    assert [number for number in found if number % 2] == [11, 15, 17, 19]


def test_a_queue_gets_all_partitions_by_time(spark: SparkSession, file_url: str, name: str, lake: str) -> None:
    replay(spark, lake, name, name, to="queue", replay_id="r3", url=file_url, value="text")

    async def work(bus: Bus) -> list[str]:
        async with bus.queue(name) as queue:
            return [message.data for message in await queue.peek(100)]

    assert on_bus(file_url, work) == [str(number) for number in range(40)]


def test_a_replay_that_was_stopped_goes_on_at_its_rate(
    spark: SparkSession, file_url: str, name: str, lake: str
) -> None:
    stop = Stop()
    options = {"replay_id": "r4", "url": file_url, "rate": 4.0}

    first = replay(spark, lake, name, f"{name}-2", stop=stop, on_batch=lambda *_: stop.set(), **options)  # type: ignore[arg-type]
    begun = time.monotonic()
    second = replay(spark, lake, name, f"{name}-2", replay_id="r4", url=file_url, rate=20)

    assert (first.rows, second.rows, second.known) == (20, 20, 20)
    assert time.monotonic() - begun < 60
    assert sorted(played(file_url, f"{name}-2", 0) + played(file_url, f"{name}-2", 1)) == list(range(40))


class Recording(Stop):
    """Does not wait, but remembers for how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return self.is_set


def test_a_rate_is_kept_by_pauses_between_batches(spark: SparkSession, file_url: str, name: str, lake: str) -> None:
    stop = Recording()
    until = BEGIN + timedelta(seconds=2)

    done = replay(spark, lake, name, f"{name}-2", replay_id="r6", url=file_url, until=until, rate=0.001, stop=stop)

    # One message in a thousand seconds, of which writing it has taken some.
    assert (done.batches, done.rows) == (2, 2)
    (pause,) = stop.waits
    assert 800 < pause < 1000


def test_the_same_id_in_another_lake_is_another_replay(
    spark: SparkSession, file_url: str, name: str, lake: str, tmp_path: Path
) -> None:
    second = f"{tmp_path}/second"
    archive(spark, second, url=file_url, topics=[name])

    played_rows = [
        replay(spark, one, name, f"{name}-2", replay_id="x" * 80, url=file_url).rows for one in (lake, second)
    ]

    assert played_rows == [40, 40]


def test_a_choice_of_few_among_many_is_one_piece_for_each_partition(
    spark: SparkSession, file_url: str, name: str, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PIECE_ROWS", 2)
    where = "offset % 4 = 1"

    done = replay(spark, lake, name, f"{name}-2", replay_id="r7", url=file_url, where=where)

    plan = msgspec.json.decode(Path(lake, "_onebus/replays/r7.json").read_bytes(), type=replaying.Plan)
    assert [(piece.partition, piece.first, piece.end) for piece in plan.batches[0]] == [(0, 1, 18), (1, 1, 18)]
    assert (done.batches, done.rows) == (1, 10)
    assert played(file_url, f"{name}-2") == [0, 8, 16, 24, 32]


def test_two_lives_of_a_topic_are_played_one_after_the_other_by_time(
    spark: SparkSession, file_url: str, name: str, lake: str
) -> None:
    on_bus(file_url, lambda bus: bus.topic(name).delete())
    create_topic(file_url, name, partitions=2)
    # Messages that are older than all others.
    append(file_url, name, numbers(100, 103))
    archive(spark, lake, url=file_url, topics=[name])

    replay(spark, lake, name, f"{name}-2", replay_id="r8", url=file_url)

    assert played(file_url, f"{name}-2") == [100, 101, 102, *range(0, 40, 2)]


def test_what_comes_later_belongs_to_another_replay(spark: SparkSession, file_url: str, name: str, lake: str) -> None:
    replay(spark, lake, name, f"{name}-2", replay_id="r5", url=file_url)
    append(file_url, name, numbers(40, 41))
    archive(spark, lake, url=file_url, topics=[name])

    assert replay(spark, lake, name, f"{name}-2", replay_id="r5", url=file_url).rows == 0
    with pytest.raises(InvalidArgument, match="other options"):
        replay(spark, lake, name, f"{name}-3", replay_id="r5", url=file_url)


@pytest.mark.parametrize(
    "options",
    [
        {"replay_id": "a b"},
        {"replay_id": "r", "kind": "queue"},
        {"replay_id": "r", "to": "cache"},
        {"replay_id": "r", "rate": 0},
        {"replay_id": "r", "value": "xml"},
        {"replay_id": "r", "since": datetime(2026, 1, 1)},  # noqa: DTZ001
    ],
)
def test_what_cannot_be_asked_for_is_an_error(
    spark: SparkSession, file_url: str, tmp_path: Path, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidArgument):
        replay(spark, str(tmp_path), "t", "u", url=file_url, **options)  # type: ignore[arg-type]
