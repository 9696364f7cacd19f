"""The jobs of the data pipeline as commands. Each starts a Spark of its own, so these tests are few."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onebus.spark.jobs import archive
from tests.cli.command import ONEBUS, onebus, onebus_running
from tests.spark.bus import append, create_topic, numbers, on_bus
from tests.spark.lakes import files, ids, plain

CONF = ("--master", "local[1]", "--conf", "spark.ui.enabled=false")
DEADLINE_SECONDS = 240


@pytest.fixture(autouse=True)
def _commands(monkeypatch: pytest.MonkeyPatch, file_url: str) -> None:
    monkeypatch.setenv("ONEBUS_STORE", file_url)
    # The compiler that starts fast is the better one for a program that soon ends.
    options = "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", options)


def pipeline(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*ONEBUS, "pipeline", *arguments, *CONF]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


@pytest.mark.timeout(2 * DEADLINE_SECONDS)
def test_an_audit_that_finds_something_names_it_and_fails(
    spark: SparkSession, file_url: str, name: str, tmp_path: Path
) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(0, 3))
    archive(spark, f"{tmp_path}/lake", url=file_url, topics=[name])
    (file,) = files(tmp_path / "lake")
    file.unlink()

    done = pipeline("audit", f"{tmp_path}/lake", "--html", f"{tmp_path}/audit.html")

    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith(f"topic {name}:0: 3 missing in the lake: 1-3\n3 missing, 0 duplicated\n")
    assert "<svg" in (tmp_path / "audit.html").read_text()


@pytest.mark.timeout(2 * DEADLINE_SECONDS)
def test_a_replay_writes_to_the_bus(spark: SparkSession, file_url: str, name: str, tmp_path: Path) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(0, 3))
    archive(spark, f"{tmp_path}/lake", url=file_url, topics=[name])

    done = pipeline(
        "replay", f"{tmp_path}/lake", name, "again", "--id", "one", "--value", "text", "--where", "offset < 3"
    )

    assert done.returncode == 0, done.stderr
    assert "replayed 2 messages; 0 had been replayed before" in done.stderr
    messages = on_bus(file_url, lambda bus: bus.topic("again").read(0))
    assert [message.data for message in messages] == ["0", "1"]


@pytest.mark.timeout(2 * DEADLINE_SECONDS)
def test_ctrl_c_stops_an_archive_after_its_batch(file_url: str, name: str, tmp_path: Path) -> None:
    create_topic(file_url, name, partitions=1)
    append(file_url, name, numbers(0, 3))
    with onebus_running("pipeline", "archive", f"{tmp_path}/lake", "--topic", name, "--continuous", *CONF) as job:
        assert job.stderr is not None
        while (line := job.stderr.readline()) != "archive: batch 1, 3 messages\n":
            assert line, "it ended"

        job.send_signal(signal.SIGINT)
        _, errors = job.communicate(timeout=DEADLINE_SECONDS)

    assert job.returncode == 130
    assert "archived 3 messages in 1 batches" in errors
    assert plain(tmp_path / "lake", name) == ids(p0=3)


def test_what_goes_wrong_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = onebus("pipeline", "archive", f"{tmp_path}/lake", "--topic", "x", "--conf", "nonsense")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error[invalid_argument]: A setting of Spark is NAME=VALUE")

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    done = onebus("pipeline", "archive", f"{tmp_path}/lake", "--topic", "x")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error[spark_unusable]: Spark needs Java 17 or newer")
