"""What Spark weighs: the heap of its Java, and the Python programs that it has started."""

from pathlib import Path

from pyspark.sql import SparkSession

from bench.timing import resident_bytes


def heap_bytes(spark: SparkSession) -> int:
    """Return what is alive in the heap of the driver, which is the executor, too."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def programs_bytes(spark: SparkSession) -> int:
    """Return what the Python programs below Spark weigh."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java = int(jvm.java.lang.ProcessHandle.current().pid())
    return sum(_resident(pid) for pid in programs_below(java))


def _resident(pid: int) -> int:
    try:
        return resident_bytes(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def programs_below(parent: int) -> list[int]:
    """Return the programs that a program has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(above, []).append(int(folder.name))
    found, waiting = [], [parent]
    while waiting:
        here = children.get(waiting.pop(), [])
        found += here
        waiting += here
    return found
