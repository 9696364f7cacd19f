"""An audit finds what is missing, doubled or damaged, and names it."""

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onebus import Bus
from onebus.errors import InvalidArgument, LakeMissing
from onebus.log.retention import Retention
from onebus.objects.topics.names import log_of
from onebus.spark.connection import Urls
from onebus.spark.jobs import archive, audit, auditing
from onebus.spark.jobs.report import html_report
from onebus.spark.jobs.store import Seen
from tests.spark.bus import append, create_topic, numbers, on_bus
from tests.spark.lakes import files


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def database(url: str) -> sqlite3.Connection:
    return sqlite3.connect(url.removeprefix("sqlite:///"))


def test_a_clean_run_passes(spark: SparkSession, url: str, name: str, lake: Path) -> None:
    create_topic(url, name, partitions=2)
    append(url, name, numbers(0, 200))
    append(url, name, numbers(0, 63), partition=1)
    archive(spark, str(lake), url=url, topics=[name], then_trim=True, even_unread=True)
    append(url, name, numbers(200, 230))

    found = audit(spark, str(lake), url=url)

    assert (found.is_clean, found.problems, found.missing, found.doubled) == (True, [], 0, 0)
    assert [(one.lake_rows, one.only_in_store) for one in found.sources] == [(200, 30), (63, 0)]
    assert "Every message is there, exactly once." in html_report(found)


def test_a_removed_and_a_doubled_file_are_found_with_their_ids(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    create_topic(file_url, name, partitions=1)
    for first in (0, 100, 200):
        append(file_url, name, numbers(first, first + 100))
        archive(spark, str(lake), url=file_url, topics=[name])
    oldest, middle, _ = files(lake)
    shutil.copy(oldest, oldest.with_name("copy.parquet"))
    middle.unlink()

    found = audit(spark, str(lake), url=file_url, topics=[name])

    assert found.problems == [
        f"topic {name}:0: 100 missing in the lake: 101-200",
        f"topic {name}:0: 100 too many in the lake: 1-100",
    ]
    page = html_report(found)
    assert "101-200" in page
    assert "<svg" in page
    assert "http" not in page.replace(found.lake, "")


def test_a_hole_in_the_store_is_found(spark: SparkSession, file_url: str, name: str, lake: Path) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(0, 10), numbers(10, 20), numbers(20, 30))
    archive(spark, str(lake), url=file_url, topics=[name])
    with database(file_url) as connection:
        assert connection.execute("DELETE FROM onebus_batch WHERE last_id = 20").rowcount == 1
    connection.close()

    found = audit(spark, str(lake), url=file_url)

    assert found.problems == [f"topic {name}:0: 10 missing in the store: 11-20"]


def test_damaged_bytes_in_the_store_are_found(spark: SparkSession, file_url: str, name: str, lake: Path) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(0, 10), numbers(10, 20))
    archive(spark, str(lake), url=file_url, topics=[name])
    with database(file_url) as connection:
        (blob,) = connection.execute("SELECT blob FROM onebus_batch WHERE last_id = 20").fetchone()
        broken = blob[:-1] + bytes([blob[-1] ^ 1])
        connection.execute("UPDATE onebus_batch SET blob = ? WHERE last_id = 20", (broken,))
    connection.close()

    found = audit(spark, str(lake), url=file_url, topics=[name])

    assert found.problems == [f"topic {name}:0: 10 damaged in the store: 11-20"]


def test_what_retention_forgot_first_is_told_and_is_no_error(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    create_topic(file_url, name, partitions=1, retention=Retention(max_count=30))
    append(file_url, name, numbers(0, 100))
    archive(spark, str(lake), url=file_url, topics=[name])
    append(file_url, name, numbers(100, 150))

    (one,) = audit(spark, str(lake), url=file_url).sources

    assert (one.is_clean, one.forgotten) == (True, ((1, 70), (101, 120)))


def test_dead_letters_that_are_lost_are_counted(spark: SparkSession, file_url: str, name: str, lake: Path) -> None:
    async def work(bus: Bus) -> None:
        async with bus.queue(name) as queue:
            await queue.push("poison")
            async for message in queue.consume(lease=30):
                await message.reject("bad")
                break

    on_bus(file_url, work)
    archive(spark, str(lake), url=file_url, dead_letters=[name])
    assert audit(spark, str(lake), url=file_url).is_clean
    (file,) = files(lake)
    file.unlink()

    assert audit(spark, str(lake), url=file_url).problems == [f"dead {name}:0: 1 missing in the lake"]


def test_what_the_store_forgets_while_it_is_audited_is_no_hole(
    spark: SparkSession, file_url: str, name: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(0, 10), numbers(10, 20), numbers(20, 30))
    archive(spark, str(lake), url=file_url, topics=[name])
    look = auditing._look

    def look_later(spark: SparkSession, urls: Urls, seen: Sequence[Seen]) -> object:
        epoch = seen[0].stat.epoch
        on_bus(file_url, lambda bus: bus.link.store.forget(log_of(name, 0), before=16, epoch=epoch))
        return look(spark, urls, seen)

    monkeypatch.setattr(auditing, "_look", look_later)

    assert audit(spark, str(lake), url=file_url).problems == []


def test_an_audit_of_nothing_is_an_error(spark: SparkSession, file_url: str, name: str, lake: Path) -> None:
    create_topic(file_url, name, partitions=1)
    with pytest.raises(LakeMissing, match=r"no lake at .*/lake"):
        audit(spark, str(lake), url=file_url, topics=[name])

    append(file_url, name, numbers(0, 3))
    archive(spark, str(lake), url=file_url, topics=[name])

    for wrong in (
        {"topics": [name, "nothing"]},
        {"topics": ["nothing*"]},
        {"feeds": ["/nothing"]},
        {"dead_letters": [name]},
    ):
        with pytest.raises(InvalidArgument, match=r"nothing|There is no queue"):
            audit(spark, str(lake), url=file_url, **wrong)


def test_what_exists_and_has_no_messages_can_be_audited(
    spark: SparkSession, file_url: str, name: str, lake: Path
) -> None:
    for topic in (name, f"{name}-empty"):
        create_topic(file_url, topic, partitions=1)
    append(file_url, name, numbers(0, 3))
    archive(spark, str(lake), url=file_url, topics=[f"{name}*"])

    assert audit(spark, str(lake), url=file_url, topics=[name, f"{name}-empty"]).is_clean
