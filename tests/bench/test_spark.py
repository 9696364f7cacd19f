"""A run of the benchmark that is too short to tell anything but that all of it works."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.spark.clicks import SIZE, clicks
from onebus.errors import SparkUnusable
from onebus.spark import check_spark
from tests.conftest import needing

ROOT = Path(__file__).parents[2]

COMPARED = [
    ("batch read of value and offset", "a row-by-row Python data source", "≥ 5 x"),
    ("batch read of value and offset", "the same, with no other columns", None),
    ("batch read of value and offset", "Spark's own Parquet", "≥ 0.3 x"),
    ("batch read of value and offset", "one task", None),
    ("batch read of value and offset", "one task, all on one core", "≥ 1.6 x"),
    ("batch write", "foreachPartition with one push for each row", "≥ 5 x"),
    ("stream from topic to topic", "the batch read", "≥ 0.3 x"),
    ("planning a read of 1 000 000 messages", "with 100 000 messages", "≤ 1.5 x"),
]
ALONE = [
    ("100 messages/s from topic to topic, latency p50", "≤ 500 ms"),
    ("Java heap: growth in the last 80 % of 10 micro-batches", "≤ 50 MB"),
    ("Python programs: growth in the last 80 % of 10 micro-batches", "≤ 50 MB"),
]


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("spark-commands")
@pytest.mark.usefixtures("redis")
def test_a_tiny_run_writes_every_figure(tmp_path: Path) -> None:
    with needing(SparkUnusable):
        check_spark()
    file = tmp_path / "spark.jsonl"
    command = [sys.executable, "-m", "bench", "spark", "--messages", "10000", "--json", str(file)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=590, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    found = [(line["what"], line["peer"], line["target"]) for line in lines if line.get("peer")]
    assert found == [(f"{store}: {what}", *rest) for store in ("sqlite", "redis") for what, *rest in COMPARED]
    alone = [(line["what"], line["target"]) for line in lines if line["target"] and not line["peer"]]
    assert alone == [(f"{store}: {what}", target) for store in ("sqlite", "redis") for what, target in ALONE]


def test_messages_have_the_size_they_are_said_to_have_and_differ() -> None:
    messages = list(clicks(1000))

    assert {len(message) for message in messages} == {SIZE}
    assert len(set(messages)) == len(messages)
    assert all(json.loads(message) for message in messages)
