"""A sink that crashes where it is told to, once, and then works."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from onebus.spark.sink.appending import Appending
from onebus.spark.sink.options import WriteOptions
from onebus.spark.sink.targets import Outlet
from onebus.spark.sink.writers import BusStreamWriter, Written
from onebus.spark.source import BusDataSource

# Spark's programs do not find the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

POINTS = ("task fails", "task dies", "decided", "appending", "appended", "done")


class CrashingDataSource(BusDataSource):
    """``format("crashing")``: takes the options ``crash``, a point, and ``marker``, a file that says that it has."""

    @classmethod
    def name(cls) -> str:
        return "crashing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        crash, marker = self.options.pop("crash"), self.options.pop("marker")
        return CrashingWriter(self._write_options(schema, streaming=True), crash, marker)


class CrashingWriter(BusStreamWriter):
    def __init__(self, options: WriteOptions, crash: str, marker: str) -> None:
        super().__init__(options)
        self._crash = crash
        self._marker = Path(marker)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        written = super().write(iterator)
        if self._is_at("task fails"):
            self._marker.touch()
            raise RuntimeError("crash")
        if self._is_at("task dies"):
            self._die()
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._is_at("decided"):
            self._before(Appending, "run", 0)
        if self._is_at("appending"):
            self._before(Outlet, "append", 1)
        if self._is_at("appended"):
            self._after(Appending, "run")
        super().commit(messages, batchId)
        if self._is_at("done"):
            self._die()

    def _is_at(self, point: str) -> bool:
        return self._crash == point and not self._marker.exists()

    def _die(self) -> None:
        self._marker.touch()
        os._exit(1)

    def _before(self, owner: type, method: str, calls: int) -> None:
        """Die when a method is called, after it was so many times."""
        original: Callable[..., Any] = getattr(owner, method)
        done = 0

        async def dying(*given: Any, **named: Any) -> Any:
            nonlocal done
            if done == calls:
                self._die()
            done += 1
            return await original(*given, **named)

        setattr(owner, method, dying)

    def _after(self, owner: type, method: str) -> None:
        original: Callable[..., Any] = getattr(owner, method)

        async def dying(*given: Any, **named: Any) -> Any:
            await original(*given, **named)
            self._die()

        setattr(owner, method, dying)
