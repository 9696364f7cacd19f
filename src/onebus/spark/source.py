"""``format("onebus")``: where Spark asks for readers and writers of the bus."""

from typing import ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from onebus.errors import InvalidArgument
from onebus.spark.options import ReadOptions, schema_of
from onebus.spark.reading import BusReader
from onebus.spark.sink.columns import check_columns
from onebus.spark.sink.options import WriteOptions
from onebus.spark.sink.writers import BusStreamWriter, BusWriter
from onebus.spark.streaming import BusStreamReader


class BusDataSource(DataSource):
    """Topics, feeds and queues as data frames."""

    url: ClassVar[str | None] = None
    """Where the store is, unless an option says so."""

    @classmethod
    def at(cls, url: str) -> type["BusDataSource"]:
        """Return this source for a store that need not be named in every option."""
        return type("ConfiguredBusDataSource", (cls,), {"url": url})

    @classmethod
    def name(cls) -> str:
        return "onebus"

    def schema(self) -> str:
        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BusReader(self._read_options(streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return BusStreamReader(self._read_options(streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise InvalidArgument('What was published stays: write with mode("append"), and not with overwrite.')
        return BusWriter(self._write_options(schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        if overwrite:
            raise InvalidArgument('What was published stays: write with outputMode("append"), and not with complete.')
        return BusStreamWriter(self._write_options(schema, streaming=True))

    def _read_options(self, *, streaming: bool) -> ReadOptions:
        return ReadOptions.parse(self.options, streaming=streaming, default_url=self.url)

    def _write_options(self, schema: StructType, *, streaming: bool) -> WriteOptions:
        options = WriteOptions.parse(self.options, streaming=streaming, default_url=self.url)
        check_columns(schema, options)
        return options
