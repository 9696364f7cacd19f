"""Executors of their own, which have nothing of onebus but its wheel."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pyspark
import pytest

from onebus.errors import SparkUnusable
from onebus.spark import check_spark
from tests.conftest import needing
from tests.services import RedisServer
from tests.spark.bus import append, create_topic, numbers

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the wheel, and the libraries that it needs, but not this folder."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    site = next(folder.glob("venv/lib/python*/site-packages"))
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    # The .pth files of the folder that is named here, by which this project is found, are not looked at.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "venv" / "bin" / "python"


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """Spark in a folder of its own: executors leave their files where it is."""
    home = tmp_path / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    return home


@pytest.mark.timeout(300)  # three programs in Java and theirs in Python begin from nothing
def test_executors_need_nothing_but_the_wheel(installed: Path, spark_home: Path, redis: RedisServer, name: str) -> None:
    with needing(SparkUnusable):
        check_spark()
    create_topic(redis.url, name)
    append(redis.url, name, *(numbers(first, first + 10) for first in range(0, 100, 10)))

    cluster = subprocess.run(
        [installed, Path(__file__).with_name("cluster.py"), redis.url, name],
        env={**os.environ, "PYSPARK_PYTHON": str(installed), "SPARK_HOME": str(spark_home)},
        capture_output=True,
        check=False,
        text=True,
        timeout=240,
    )

    assert cluster.returncode == 0, cluster.stderr
    found = json.loads(cluster.stdout)
    assert found["numbers"] == list(range(100))
    assert len(found["executors"]) == 2
    assert found["files"] == [str(next(installed.parents[1].glob("lib/*/site-packages/onebus/__init__.py")))]
