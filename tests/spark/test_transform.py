"""What a file declares, done: the examples, and what is said of files that cannot be used."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onebus import Bus
from onebus.errors import InvalidArgument, InvalidTransform
from onebus.spark.jobs import table, transform
from tests.spark.bus import create_topic, on_bus

EXAMPLES = Path(__file__).parents[2] / "examples" / "transforms"

DECLARED = """
sql = "SELECT visitor, page FROM clicks"
[from.clicks]
topic = "TOPIC"
schema = "visitor string, page string"
[to]
topic = "TOPIC-out"
key = "visitor"
"""


def publish(url: str, topic: str, *messages: Any) -> None:
    async def work(bus: Bus) -> None:
        await asyncio.gather(*(bus.topic(topic, partitions=2).publish(message) for message in messages))

    on_bus(url, work)


def published(url: str, topic: str) -> list[tuple[str | None, Any]]:
    """The keys and data of all messages of a topic."""

    async def work(bus: Bus) -> list[tuple[str | None, Any]]:
        found = bus.topic(topic)
        partitions = range((await found.describe()).partitions)
        messages = [message for number in partitions for message in await found.read(number, 0, 1000)]
        return [(None if message.key is None else message.key.decode(), message.data) for message in messages]

    return sorted(on_bus(url, work), key=str)


def run(spark: SparkSession, file: Path, url: str, folder: Path) -> None:
    query = transform(spark, file, url=url, lake=f"{folder}/lake", once=True)
    assert query.awaitTermination(150)


def declared(folder: Path, name: str, old: str = "", new: str = "") -> Path:
    assert old in DECLARED
    file = folder / "clicks.toml"
    file.write_text(DECLARED.replace(old, new).replace("TOPIC", name))
    return file


def test_two_topics_are_joined(spark: SparkSession, file_url: str, tmp_path: Path) -> None:
    orders = [{"id": number, "visitor": f"v{number}", "total": number * 1.5} for number in (1, 2, 3)]
    publish(file_url, "orders", *orders)
    publish(file_url, "payments", {"order": 1, "method": "card"}, {"order": 3, "method": "cash"})

    run(spark, EXAMPLES / "paid_orders.toml", file_url, tmp_path)

    assert published(file_url, "paid-orders") == [
        ("v1", {"id": 1, "visitor": "v1", "total": 1.5, "method": "card"}),
        ("v3", {"id": 3, "visitor": "v3", "total": 4.5, "method": "cash"}),
    ]


def test_what_comes_twice_is_passed_on_once(spark: SparkSession, file_url: str, tmp_path: Path) -> None:
    first = [{"id": f"c{number}", "visitor": "ann", "page": f"/{number}"} for number in range(4)]
    publish(file_url, "clicks", *first, *first[:2])
    run(spark, EXAMPLES / "distinct_clicks.toml", file_url, tmp_path)
    last = {"id": "c4", "visitor": "ann", "page": "/4"}
    publish(file_url, "clicks", first[3], last)

    # The second run remembers what came in the first.
    run(spark, EXAMPLES / "distinct_clicks.toml", file_url, tmp_path)

    assert published(file_url, "distinct-clicks") == [("ann", click) for click in [*first, last]]


def test_clicks_become_sessions(spark: SparkSession, file_url: str, tmp_path: Path) -> None:
    def click(visitor: str, time: str, page: str) -> dict[str, str]:
        return {"visitor": visitor, "page": page, "at": f"2026-03-01T{time}Z"}

    visits = [
        click("ann", "10:00:00", "/"),
        click("ann", "10:20:00", "/books/1"),
        click("ben", "10:05:00", "/books/2"),
        click("ann", "12:00:00", "/help"),
        click("cleo", "15:00:00", "/"),
    ]
    publish(file_url, "clicks", *visits)

    run(spark, EXAMPLES / "sessions.toml", file_url, tmp_path)

    found = table(spark, f"{tmp_path}/lake", "sessions").sort("start").collect()
    # Cleo may still be there: nothing later has come.
    assert [(row.visitor, row.clicks, row.sections, f"{row.end:%H:%M}") for row in found] == [
        ("ann", 2, ["books", "home"], "10:50"),
        ("ben", 1, ["books"], "10:35"),
        ("ann", 1, ["help"], "12:30"),
    ]


def test_a_transformation_goes_on_where_it_was(spark: SparkSession, url: str, name: str, tmp_path: Path) -> None:
    file = declared(tmp_path, name)
    publish(url, name, {"visitor": "ann", "page": "/"}, "no JSON object")
    run(spark, file, url, tmp_path)
    publish(url, name, {"visitor": "ben", "page": "/help", "more": 1})

    run(spark, file, url, tmp_path)

    assert published(url, f"{name}-out") == [
        ("ann", {"visitor": "ann", "page": "/"}),
        ("ben", {"visitor": "ben", "page": "/help"}),
        (None, {}),
    ]


def test_a_micro_batch_that_is_run_again_replaces_its_rows_in_the_lake(
    spark: SparkSession, file_url: str, name: str, tmp_path: Path
) -> None:
    file = declared(tmp_path, name, 'topic = "TOPIC-out"\nkey = "visitor"', 'table = "clicks"')
    publish(file_url, name, {"visitor": "ann", "page": "/"})
    run(spark, file, file_url, tmp_path)

    # As if Spark had died after it wrote, and before it knew.
    (tmp_path / "lake/_checkpoints/clicks/commits/0").unlink()
    (tmp_path / "lake/_checkpoints/clicks/commits/.0.crc").unlink(missing_ok=True)
    run(spark, file, file_url, tmp_path)

    found = table(spark, f"{tmp_path}/lake", "clicks").collect()
    assert [(row.visitor, row.page, row.batch) for row in found] == [("ann", "/", 0)]


WRONG = {
    "key nobody knows": ('schema = "', 'shcema = "', "from.clicks: .*shcema.*Known here are topic"),
    "another key nobody knows": ('sql = "', 'sqll = "', "sqll"),
    "type": ('key = "visitor"', "key = 3", "to.key: Expected `str"),
    "key without column": ('key = "visitor"', 'key = "vistor"', "to.key: There is no column 'vistor'"),
    "no SQL": ("SELECT visitor", "SELEC visitor", "sql: .*SELEC"),
    "unknown column": ("visitor, page FROM", "visitor, pag FROM", "sql: .*pag"),
    "no stream": ("visitor, page FROM clicks", "1 AS visitor", "sql: .*stream"),
    "no schema": ("visitor string,", "visitor strin,", "from.clicks.schema: .*STRIN"),
    "no watermark": ("[to]", 'watermark = "often"\n[to]', "from.clicks.watermark: .*often"),
    "no time": ("[to]", 'time = "at"\n[to]', "from.clicks.time: There is no column 'at'"),
    "no timestamp": ("[to]", 'time = "page"\nwatermark = "1 minute"\n[to]', "from.clicks.time: .*must be a timestamp"),
    "unique for ever": ("[to]", 'unique = ["page"]\n[to]', "from.clicks.unique: .*watermark"),
    "unknown start": ("[to]", 'starting = "now"\n[to]', "from.clicks.starting: .*earliest or latest"),
    "nowhere": ('topic = "TOPIC-out"\nkey = "visitor"', "", "to: .*exactly one"),
    "two ways": ("[from.clicks]", 'python = "a:b"\n[from.clicks]', "sql: .*exactly one of sql and python"),
    "no function": ('sql = "SELECT visitor, page FROM clicks"', 'python = "json:nothing"', "python: There is no funct"),
    "other function": ('sql = "SELECT visitor, page FROM clicks"', 'python = "json:loads"', "python: loads.*by name"),
    "no module": ('sql = "SELECT visitor, page FROM clicks"', 'python = "no.py:f"', "python: no.py cannot be loaded"),
    "no TOML": ("[to]", "[to", "cannot be read"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_file_is_said_with_its_name_and_the_key(
    spark: SparkSession, file_url: str, name: str, tmp_path: Path, case: str
) -> None:
    old, new, text = WRONG[case]
    create_topic(file_url, name)

    with pytest.raises(InvalidTransform, match=f"(?s){tmp_path}/clicks.toml.*{text}"):
        transform(spark, declared(tmp_path, name, old, new), url=file_url, lake=f"{tmp_path}/lake", once=True)


def test_a_transformation_needs_a_place_to_remember(spark: SparkSession, name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="checkpoint"):
        transform(spark, declared(tmp_path, name))


def test_json_that_is_written_is_json_for_consumers(
    spark: SparkSession, file_url: str, name: str, tmp_path: Path
) -> None:
    publish(file_url, name, {"visitor": "ann", "page": "/"})

    run(
        spark,
        declared(tmp_path, name, 'topic = "TOPIC-out"\nkey = "visitor"', 'feed = "/clicks"'),
        file_url,
        tmp_path,
    )

    messages = on_bus(file_url, lambda bus: bus.backlog("/clicks"))
    assert [message.data for message in messages] == [{"visitor": "ann", "page": "/"}]
    assert json.dumps(messages[0].data)
