"""One Spark for all tests of a worker: to start it takes longer than most of them."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from onebus.errors import SparkUnusable
from onebus.spark import check_spark, register, use_this_interpreter
from tests.backings import Backing
from tests.conftest import needing

HERE = Path(__file__).parent
STORES = ("sqlite", "postgres", "redis")
STARTS_ITS_OWN = ("test_commands", "test_rollup_and_transform_commands", "test_example", "test_cluster")
"""Tests that start a Spark for themselves need not wait for those that share one."""
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For programs that end before it would pay to make them fast."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            has_its_own = item.path.stem in STARTS_ITS_OWN
            item.add_marker(pytest.mark.xdist_group("spark-commands" if has_its_own else "spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with needing(SparkUnusable):
        check_spark()
    use_this_interpreter()
    folder = tmp_path_factory.mktemp("spark")
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": f"{folder}/local",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        # Two thirds of the time of a small micro-batch are spent on the files of its checkpoint.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    register(session)
    yield session
    session.stop()


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest) -> str:
    """A store of each kind that Spark is tried with."""
    place = Backing(request.param, request.getfixturevalue).url
    assert isinstance(place, str)
    return place


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """A store that is a file, where it does not matter which."""
    return f"sqlite:///{tmp_path}/bus.db"


@pytest.fixture
def name() -> str:
    return f"t-{uuid4().hex}"
