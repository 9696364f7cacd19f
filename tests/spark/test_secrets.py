"""The password of a store reaches those who need it, and is shown nowhere."""

import os
import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from onebus.spark import register
from onebus.spark.session import URL_CONF
from tests.conftest import running
from tests.services import RedisServer
from tests.spark.bus import append, create_topic, numbers, read

PASSWORD = "aVerySecretWord"


@pytest.fixture(scope="module")
def locked_url() -> Iterator[str]:
    """A store that asks for a password."""
    with running(RedisServer(password=PASSWORD)) as server:
        yield server.url


def test_plans_and_logs_do_not_show_it(
    spark: SparkSession, locked_url: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    create_topic(locked_url, name)
    append(locked_url, name, numbers(1, 4))
    frame = read(spark, locked_url, subscribe=name)

    assert frame.count() == 3

    frame.explain(extended=True)
    frame.explain("formatted")
    execution = frame._jdf.queryExecution()
    shown = [*capfd.readouterr(), execution.toString(), execution.logical().toJSON(), execution.simpleString()]
    assert "onebus" in shown[0]
    assert not [text for text in shown if PASSWORD in text]


def test_errors_do_not_show_it(spark: SparkSession, locked_url: str, name: str) -> None:
    with pytest.raises(AnalysisException, match="TopicMissing") as missing:
        read(spark, locked_url, subscribe=name).collect()
    wrong = locked_url.replace(PASSWORD, f"{PASSWORD}Not")
    with pytest.raises(AnalysisException, match="AccessDenied") as denied:
        read(spark, wrong, subscribe=name).collect()

    assert PASSWORD not in str(missing.value)
    assert PASSWORD not in str(denied.value)


def test_a_session_knows_its_store_and_does_not_show_it(spark: SparkSession, locked_url: str, name: str) -> None:
    create_topic(locked_url, name)
    append(locked_url, name, numbers(1, 4))
    spark.conf.set(URL_CONF, locked_url)
    try:
        register(spark)

        assert spark.read.format("onebus").option("subscribe", name).load().count() == 3
        settings = {row.key: row.value for row in spark.sql("set").collect()}
        assert URL_CONF in settings
        assert PASSWORD not in str(settings)
    finally:
        spark.conf.unset(URL_CONF)
        register(spark)


IN_A_JOB = """
import os
from pathlib import Path

from onebus.spark.jobs.session import job_session
from onebus.spark.session import URL_CONF

def commands():
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes().decode(errors="replace")
        except OSError:
            pass

url = os.environ["ONEBUS_STORE"]
with job_session("test", master="local[1]", conf=["spark.ui.enabled=false"], urls=[url]) as spark:
    assert spark.conf.get(URL_CONF) == url
    found = list(commands())
    print(any("pyspark-shell" in one for one in found), any(url in one for one in found))
"""


@pytest.mark.timeout(240)
def test_the_processes_of_a_job_do_not_show_it() -> None:
    url = f"redis://:{uuid4().hex}@127.0.0.1:1"
    command = [sys.executable, "-c", IN_A_JOB]

    done = subprocess.run(
        command, env=os.environ | {"ONEBUS_STORE": url}, capture_output=True, text=True, timeout=200, check=False
    )

    assert done.stdout == "True False\n", done.stderr
