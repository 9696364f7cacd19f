"""Topics, feeds and dead letters in a lake, each message once, whatever crashes."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onebus import Bus
from onebus.errors import InvalidArgument, LakeBusy
from onebus.log.batch import Entry
from onebus.log.retention import Retention
from onebus.spark.jobs import archive
from onebus.spark.jobs.commits import Commit
from onebus.spark.jobs.files import Files
from onebus.spark.jobs.lake import Lake
from onebus.spark.jobs.running import Stop
from tests.spark.bus import append, create_topic, numbers, on_bus
from tests.spark.lakes import files, ids, plain


class Crash(Exception):
    pass


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def fill(url: str, name: str, *counts: int) -> None:
    for partition, count in enumerate(counts):
        append(url, name, numbers(0, count), partition=partition)


def test_a_topic_is_archived_once_and_then_what_is_new(spark: SparkSession, url: str, name: str, lake: Path) -> None:
    create_topic(url, name, partitions=2)
    fill(url, name, 300, 20)

    first = archive(spark, str(lake), url=url, topics=[name])
    assert (first.rows, plain(lake, name)) == (320, ids(p0=300, p1=20))

    assert archive(spark, str(lake), url=url, topics=[name]).rows == 0
    append(url, name, numbers(300, 310), partition=0)
    second = archive(spark, str(lake), url=url, topics=[name])
    assert (second.rows, plain(lake, name)) == (10, ids(p0=310, p1=20))


def test_feeds_and_dead_letters_are_archived_with_their_headers(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    async def work(bus: Bus) -> None:
        await bus.publish(f"/{name}", {"text": "hello"})
        async with bus.queue(name) as queue:
            await queue.push("poison")
            async for message in queue.consume(lease=30):
                await message.reject("too bad")
                break

    on_bus(file_url, work)

    archive(spark, str(lake), url=file_url, feeds=["/*"], dead_letters=[name])

    assert plain(lake, f"/{name}", kind="feed") == [(0, 1)]
    assert plain(lake, name, kind="dead") == [(0, 1)]
    (row,) = spark.read.parquet(str(lake)).where("kind = 'dead'").collect()
    assert {header.key: bytes(header.value) for header in row.headers}["onebus-reason"] == b"too bad"


def test_a_pattern_finds_topics_and_small_batches_become_one_file(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    for end in ("a", "b"):
        create_topic(file_url, f"{name}-{end}", partitions=1)
        fill(file_url, f"{name}-{end}", 100)

    done = archive(spark, str(lake), url=file_url, topics=[f"{name}-*"], rows_at_once=50)

    assert done.batches >= 4
    assert plain(lake, f"{name}-a") == plain(lake, f"{name}-b") == ids(p0=100)
    assert len(files(lake)) == 2


def test_ids_that_are_gone_do_not_hide_those_after_them(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    create_topic(file_url, name, partitions=1, compact=True)
    append(file_url, name, [Entry(b"first", key=b"first")], *([Entry(b"same", key=b"same")] for _ in range(19)))
    on_bus(file_url, lambda bus: bus.topic(name).compact())

    archive(spark, str(lake), url=file_url, topics=[name], rows_at_once=5)

    assert plain(lake, name) == [(0, 1), (0, 20)]


def test_channels_may_have_commas_in_their_names(spark: SparkSession, file_url: str, name: str, lake: Path) -> None:
    channels = [f"/{name}/a,b", f"/{name}/c"]

    async def work(bus: Bus) -> None:
        for channel in channels:
            await bus.publish(channel, "hello")

    on_bus(file_url, work)

    archive(spark, str(lake), url=file_url, feeds=channels)

    assert [plain(lake, channel, kind="feed") for channel in channels] == [[(0, 1)], [(0, 1)]]


def test_what_was_forgotten_before_is_told_and_the_rest_is_archived(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    create_topic(file_url, name, partitions=1, retention=Retention(max_count=30))
    append(file_url, name, numbers(0, 50), numbers(50, 100))

    done = archive(spark, str(lake), url=file_url, topics=[name])

    assert (done.rows, done.forgotten) == (30, 70)
    assert plain(lake, name) == ids(p0=100)[70:]


def test_a_topic_that_was_made_anew_is_archived_again(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    for _ in range(2):
        create_topic(file_url, name, partitions=1)
        fill(file_url, name, 10)
        archive(spark, str(lake), url=file_url, topics=[name])
        on_bus(file_url, lambda bus: bus.topic(name).delete())

    assert plain(lake, name) == sorted(ids(p0=10) * 2)
    assert spark.read.parquet(str(lake)).select("epoch").distinct().count() == 2


CRASHES = ("staged", "committed", "half moved")


@pytest.mark.parametrize("large", [True, False], ids=["batch", "seal"])
@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_at_any_point_loses_and_doubles_nothing(
    spark: SparkSession,
    file_url: str,
    name: str,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    crash: str,
    large: bool,
) -> None:
    create_topic(file_url, name, partitions=2)
    fill(file_url, name, 40, 5)
    _crash_in_the_next_commit_with_moves(monkeypatch, crash)

    with pytest.raises(Crash):
        archive(spark, str(lake), url=file_url, topics=[name], seal_rows=1 if large else 10**6)
    seen = plain(lake, name)
    assert len(set(seen)) == len(seen)
    monkeypatch.undo()
    newest = Lake(spark, str(lake)).settled()
    held = Lake(spark, str(lake)).frame(newest, kind="topic", topic=name)
    assert (
        held.count()
        == held.select("partition", "offset").distinct().count()
        == sum(one.rows for one in newest.holdings)
    )
    append(file_url, name, numbers(0, 5), partition=1)
    archive(spark, str(lake), url=file_url, topics=[name])

    assert plain(lake, name) == ids(p0=40, p1=10)


def _crash_in_the_next_commit_with_moves(monkeypatch: pytest.MonkeyPatch, crash: str) -> None:
    commit, move = Lake.commit, Files.move

    def crashing_commit(self: Lake, new: Commit) -> None:
        if crash == "staged" and new.moves:
            raise Crash
        commit(self, new)

    def crashing_move(self: Files, source: str, target: str) -> None:
        if crash == "half moved":
            move(self, source, target)
        if crash != "staged":
            raise Crash

    monkeypatch.setattr(Lake, "commit", crashing_commit)
    monkeypatch.setattr(Files, "move", crashing_move)


def test_of_two_who_archive_into_one_lake_the_slower_one_fails(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    create_topic(file_url, name, partitions=1)
    fill(file_url, name, 10)
    slow = Lake(spark, str(lake))
    known = slow.recover()
    archive(spark, str(lake), url=file_url, topics=[name])

    with pytest.raises(LakeBusy):
        slow.commit(Commit(known.number + 1))
    for commit in sorted(lake.glob("_onebus/commits/*"))[:-1]:
        commit.unlink()
    with pytest.raises(LakeBusy):
        slow.commit(Commit(known.number + 1))

    assert plain(lake, name) == ids(p0=10)


def test_the_store_forgets_what_is_in_the_lake_and_was_read(
    spark: SparkSession, url: str, name: str, lake: Path
) -> None:
    create_topic(url, name, partitions=2)
    fill(url, name, 100, 100)

    async def read_some(bus: Bus) -> None:
        await bus.topic(name).seek("readers", message_id=31, partitions=[0])

    async def firsts(bus: Bus) -> list[int]:
        return [state.first_id for state in await bus.topic(name).partitions()]

    on_bus(url, read_some)

    done = archive(spark, str(lake), url=url, topics=[name], then_trim=True, keep_for=["readers"])
    assert (done.trimmed, on_bus(url, firsts)) == (30, [31, 1])

    append(url, name, numbers(100, 110), partition=1)
    done = archive(spark, str(lake), url=url, topics=[name], then_trim=True, even_unread=True)
    assert (done.trimmed, on_bus(url, firsts)) == (180, [101, 111])
    assert plain(lake, name) == ids(p0=100, p1=110)


def test_a_job_that_is_told_to_stop_does_so_after_its_batch(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    create_topic(file_url, name, partitions=1)
    fill(file_url, name, 100)
    stop = Stop()

    done = archive(
        spark,
        str(lake),
        url=file_url,
        topics=[name],
        once=False,
        rows_at_once=30,
        stop=stop,
        on_batch=lambda _: stop.set(),
    )

    assert (done.batches, plain(lake, name)) == (1, ids(p0=30))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topics": ["t"], "then_trim": True},
        {"topics": ["t"], "even_unread": True},
        {"topics": ["t"], "keep_for": "g"},
    ],
)
def test_what_cannot_be_asked_for_is_an_error(
    spark: SparkSession, file_url: str, lake: Path, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidArgument):
        archive(spark, str(lake), url=file_url, **options)  # type: ignore[arg-type]
