"""How much of the machine may be used: one core, to see what the second one adds."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.spark.memory import programs_below


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this program and all that it has started, Spark and the servers of the stores, on one core meanwhile."""
    allowed = os.sched_getaffinity(0)
    _allow({min(allowed)})
    try:
        yield
    finally:
        _allow(allowed)


def _allow(cores: set[int]) -> None:
    # Whoever is started later inherits this from the thread that starts it.
    for program in (os.getpid(), *programs_below(os.getpid())):
        with suppress(FileNotFoundError):
            for thread in Path(f"/proc/{program}/task").iterdir():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), cores)
