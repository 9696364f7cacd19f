"""`onebus pipeline rollup` and `transform`, as their users run them."""

import json
import signal
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest

from onebus.errors import SparkUnusable
from onebus.spark import check_spark
from tests.cli.command import ONEBUS
from tests.conftest import needing
from tests.services.patience import comes_true
from tests.spark.bus import append, create_topic, numbers, on_bus

SPARK = ("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=1")
SECONDS = 170

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(autouse=True)
def _needed() -> None:
    with needing(SparkUnusable):
        check_spark()


def test_a_rollup_ends_with_what_is_there(file_url: str, name: str, tmp_path: Path) -> None:
    create_topic(file_url, name)
    append(file_url, name, numbers(0, 7))
    on_bus(file_url, lambda bus: bus.topic(name).publish("much later"))
    command = ["pipeline", "rollup", f"{tmp_path}/lake", "--store", file_url, "--topic", f"{name[:9]}*", *SPARK]

    done = run([*ONEBUS, *command], capture_output=True, text=True, timeout=SECONDS, check=False)

    assert done.returncode == 0, done.stderr
    assert "8 messages in 1 batches" in done.stderr
    (window,) = on_bus(file_url, lambda bus: bus.backlog("/rollup"))
    assert (window.data["name"], window.data["messages"], window.data["bytes"]) == (name, 7, 7)


def test_a_transformation_goes_on_until_it_is_interrupted(file_url: str, name: str, tmp_path: Path) -> None:
    create_topic(file_url, name)
    file = tmp_path / "numbers.toml"
    source, target = f"[from.numbers]\ntopic = '{name}'\n", f"[to]\ntopic = '{name}-out'\npartitions = 1\n"
    file.write_text(f"sql = 'SELECT bigint(value) * 2 AS twice FROM numbers'\n{source}{target}")
    append(file_url, name, numbers(1, 3))
    command = ["pipeline", "transform", str(file), "--store", file_url, "--checkpoint", f"{tmp_path}/checkpoint"]

    def out() -> list[int]:
        messages = on_bus(file_url, lambda bus: bus.topic(f"{name}-out", partitions=1).read(0, 0, 100))
        return [message.data["twice"] for message in messages]

    with Popen([*ONEBUS, *command, "--continuous", *SPARK], stderr=PIPE, text=True) as process:
        try:
            assert comes_true(lambda: sorted(out()) == [2, 4], SECONDS)
            append(file_url, name, numbers(3, 4))
            assert comes_true(lambda: 6 in out(), SECONDS)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=SECONDS)
        finally:
            process.kill()

    assert process.returncode == 130
    assert "Stopping after the current batch" in told
    assert "3 messages in" in told


def test_a_file_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(json.dumps("no table"))

    done = run([*ONEBUS, "pipeline", "transform", str(file)], capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith(f"error[invalid_transform]: {file} cannot be read: ")
