"""The options of a reader: what each of them may be, and that what it may not be is said by name."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from onebus.errors import InvalidOption
from onebus.spark.logs import Wanted
from onebus.spark.offsets import EARLIEST, LATEST, Boundary
from onebus.spark.options import ReadOptions, schema_of

URL = "sqlite:////tmp/bus.db"


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({"url": URL, "subscribe": "clicks", **options}, streaming=False)


def parse_stream(**options: str) -> ReadOptions:
    return ReadOptions.parse({"url": URL, "subscribe": "clicks", **options}, streaming=True)


def test_without_options_everything_that_is_there_is_read() -> None:
    assert parse() == ReadOptions(
        urls=(URL,),
        wanted=Wanted("topic", names=("clicks",)),
        starting=Boundary("startingOffsets", EARLIEST),
        ending=Boundary("endingOffsets", LATEST),
        min_partitions=1,
        max_offsets_per_trigger=None,
        fail_on_data_loss=True,
        schema="`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint, `timestamp` timestamp",
    )
    assert parse_stream().starting == Boundary("startingOffsets", LATEST)


def test_options_are_known_in_any_case() -> None:
    options = parse(MINPARTITIONS="3", failondataloss="FALSE", StartingOffsets=" Earliest ", Kind="Feed")

    assert (options.min_partitions, options.fail_on_data_loss, options.wanted.kind) == (3, False, "feed")
    assert options.starting == Boundary("startingOffsets", EARLIEST)


def test_each_option_is_read() -> None:
    assert parse_stream(maxOffsetsPerTrigger="500").max_offsets_per_trigger == 500
    assert parse(kind="feed", site="berlin").wanted == Wanted("feed", ("clicks",), site="berlin")
    assert parse(startingTimestamp="5").starting == Boundary("startingTimestamp", time_ms=5)
    assert parse(endingTimestamp="6").ending == Boundary("endingTimestamp", time_ms=6)
    assert parse(startingOffsets='{"clicks": {"0": 3, "1": -2}}').starting.each == {("clicks", 0): 3, ("clicks", 1): -2}
    assert parse(endingOffsets='{"clicks": {"0": -1}}').ending.each == {("clicks", 0): -1}
    assert parse(subscribe="a, b").wanted.names == ("a", "b")
    for option, wanted in (
        ({"subscribePattern": "c.*"}, Wanted("topic", pattern="c.*")),
        ({"assign": '{"a": [0, 2]}'}, Wanted("topic", assigned={"a": (0, 2)})),
    ):
        assert ReadOptions.parse({"url": URL, **option}, streaming=False).wanted == wanted


def test_columns_are_as_the_options_say() -> None:
    assert schema_of({"columns": "offset,value", "value": "text"}) == "`offset` bigint, `value` string"
    parsed = {"columns": "value", "value": "json", "schema": "n int, deep struct<m: int>"}
    assert schema_of(parsed) == "`value` struct<n int, deep struct<m: int>>"
    assert schema_of({"includeHeaders": "true"}).endswith("`headers` array<struct<key: string, value: binary>>")


@pytest.mark.parametrize(
    "schema",
    [
        "n int",
        "n: int, `a b` STRING",
        "`a,``b` string",
        "a array<map<string, struct<b: decimal(10, 2), c array<timestamp>>>>, d date",
        "n int NOT NULL COMMENT 'one, <two> and (three', m Double",
        " `größe`  bigint ,x varchar ( 3 )",
        "s struct<>",
    ],
)
def test_what_spark_takes_for_a_schema_is_one(spark: SparkSession, schema: str) -> None:
    StructType.fromDDL(f"value struct<{schema}>")

    assert f"struct<{schema}>" in parse(value="json", schema=schema).schema


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": ""},
        {"subscribe": "a,,b"},
        {"subscribe": "a,a"},
        {"subscribePattern": "c"},  # and subscribe
        {"assign": '{"a": [0]}'},  # and subscribe
        {"kind": "stream"},
        {"site": "berlin"},  # of a topic
        {"startingOffsets": "latest"},
        {"startingOffsets": "5"},
        {"startingOffsets": '{"clicks": 5}'},
        {"startingOffsets": '{"clicks": {"x": 5}}'},
        {"startingOffsets": '{"clicks": {"0": -3}}'},
        {"startingOffsets": '{"clicks": {"0": -1}}'},
        {"startingOffsets": '{"clicks": {"0": true}}'},
        {"startingOffsets": "{"},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"clicks": {"0": -2}}'},
        {"endingOffsets": '{"clicks": {"0": 1.5}}'},
        {"startingTimestamp": "yesterday"},
        {"startingTimestamp": "-1"},
        {"startingTimestamp": "5", "startingOffsets": "earliest"},
        {"endingTimestamp": "5", "endingOffsets": "latest"},
        {"maxOffsetsPerTrigger": "5"},  # not a stream
        {"minPartitions": "0"},
        {"minPartitions": "many"},
        {"failOnDataLoss": "perhaps"},
        {"includeHeaders": "1"},
        {"includeHeaders": "true", "columns": "value"},
        {"columns": "value,colour"},
        {"columns": ""},
        {"value": "xml"},
        {"value": "json"},
        {"schema": "n int"},
        {"schema": "n strng", "value": "json"},
        {"schema": "n", "value": "json"},
        {"schema": "größe int", "value": "json"},
        {"schema": "n int,", "value": "json"},
        {"schema": "n int, m array<>", "value": "json"},
        {"schema": "n array<map<string>>", "value": "json"},
        {"schema": "n struct<a int", "value": "json"},
        {"schema": "n int>, m struct<a int", "value": "json"},
        {"url": "ftp://bus"},
        {"url": "bus.db"},
        {"url": "sqlite:///bus.db ftp://bus"},
        {"startingOffset": "earliest"},
        {"path": "/somewhere"},
    ],
)
def test_impossible_options_are_errors_that_name_them(options: dict[str, str]) -> None:
    named = next(iter(options))

    with pytest.raises(InvalidOption, match=rf"(?i)\b{named}\b"):
        parse(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "queue"},
        {"kind": "dead"},
        {"endingOffsets": '{"clicks": {"0": 5}}'},
        {"endingTimestamp": "5"},
        {"maxOffsetsPerTrigger": "0"},
    ],
)
def test_what_a_stream_cannot_do_is_named(options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match=rf"\b{next(iter(options))}\b"):
        parse_stream(**options)


@pytest.mark.parametrize("option", ["startingOffsets", "startingTimestamp", "endingTimestamp"])
def test_queues_have_no_offsets_to_choose(option: str) -> None:
    with pytest.raises(InvalidOption, match=option):
        parse(kind="queue", **{option: '{"clicks": {"0": 5}}' if option.endswith("Offsets") else "5"})


def test_assign_and_patterns_have_to_make_sense() -> None:
    for option, text in (
        ("assign", "{}"),
        ("assign", '{"a": []}'),
        ("assign", '{"a": [-1]}'),
        ("assign", '{"a": [1, 1]}'),
        ("assign", '["a"]'),
        ("subscribePattern", "("),
    ):
        with pytest.raises(InvalidOption, match=option):
            ReadOptions.parse({"url": URL, option: text}, streaming=False)
    with pytest.raises(InvalidOption, match="assign"):
        ReadOptions.parse({"url": URL, "assign": '{"a": [0]}', "kind": "feed"}, streaming=False)


def test_a_misspelt_option_is_told_the_right_one() -> None:
    with pytest.raises(InvalidOption, match=r"startingoffset is not known\. Did you mean startingOffsets\?"):
        parse(startingOffset="earliest")


# Where the store is


def test_the_store_is_said_by_the_option_or_the_session_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def urls(default: str | None = None, **options: str) -> tuple[str, ...]:
        return ReadOptions.parse({"subscribe": "clicks", **options}, streaming=False, default_url=default).urls

    monkeypatch.setenv("ONEBUS_STORE", "redis://environment redis://too")
    assert urls() == ("redis://environment", "redis://too")
    assert urls("redis://session") == ("redis://session",)
    assert urls("redis://session", url="redis://option") == ("redis://option",)
    monkeypatch.delenv("ONEBUS_STORE")
    with pytest.raises(InvalidOption, match="option url"):
        urls()


def test_a_file_is_the_same_for_processes_in_other_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    assert parse(url="sqlite:///bus.db").urls == (f"sqlite:///{tmp_path}/bus.db",)


def test_a_store_in_memory_cannot_be_shared_with_spark() -> None:
    with pytest.raises(InvalidOption, match="url"):
        parse(url="memory://bus")
